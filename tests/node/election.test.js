// Elections: candidates, hand-over to a successor by name, and observers.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Client, ConfigError, LeaseLostError } from 'quorlock'
import { open, runModule, until } from './servers.js'

const all = (servers, ...command) => Promise.all(servers.urls.map((_, server) => servers.command(server, ...command)))

/** Whether no node has the key of the leader. */
const isFree = async (servers) => (await all(servers, 'EXISTS', 'r')).every((count) => count === 0)

/** Returns once candidates of this name listen on all nodes. */
async function listening(servers, name, count = 1) {
  const channel = `quorlock:candidate:1:r:${name}`
  await until(async () => (await all(servers, 'PUBSUB', 'NUMSUB', channel)).every(([, found]) => found === count))
}

/** Resolves when the signal has aborted. */
const aborted = (signal) =>
  new Promise((resolve) => (signal.aborted ? resolve() : signal.addEventListener('abort', () => resolve())))

test('a leader runs and releases', async (t) => {
  const { servers, client } = await open(t, 3, { ttl: 600_000 })
  const first = await client.elect('r', { holder: 'a', ttl: 5_000 }, async (lease, signal) => {
    assert.deepEqual([lease.resource, lease.holder, lease.ttl, signal.aborted], ['r', 'a', 5_000, false])
    assert.equal(signal, lease.signal)
    assert.equal((await client.status('r')).holder, 'a')
    return lease.fence
  })
  assert((await client.elect('r', ({ fence }) => fence)) > first)
  await assert.rejects(
    client.elect('r', () => Promise.reject(new RangeError('mine'))),
    /mine/,
  )
  await until(() => isFree(servers))
  const { elections, releases, losses } = client.stats()
  assert.deepEqual([elections, releases, losses], [3, 3, 0])
})

test('a leader hands over by name', async (t) => {
  const { servers, client } = await open(t, 3, { ttl: 600_000 })
  const other = new Client(servers.urls, { ttl: 600_000 })
  t.after(() => other.close())
  const [fence, next] = await client.elect('r', { holder: 'a' }, async (lease) => {
    assert.equal(await lease.handOver('b'), false)
    assert(lease.valid)
    const following = other.elect('r', { holder: 'b' }, ({ fence }) => fence)
    await listening(servers, 'b')
    assert.equal(await lease.handOver('b', { within: 60_000 }), true)
    assert(!lease.valid && !lease.signal.aborted)
    return [lease.fence, await following]
  })
  assert(next > fence)
  assert.equal(client.stats().handedOver, 1)
  await until(() => isFree(servers))
})

test('a candidate campaigns again after a loss', async (t) => {
  const { servers, client } = await open(t, 3)
  const fences = []
  const times = await client.elect('r', { ttl: 2_000 }, async (lease, signal) => {
    fences.push(lease.fence)
    if (fences.length === 5) return fences.length
    await client.forceRelease('r')
    await aborted(signal)
    // It returns, or rejects with one of the errors that the signal may cause.
    if (fences.length === 1) return
    if (fences.length === 2) signal.throwIfAborted()
    if (fences.length === 3) throw Object.assign(new Error('the operation was aborted'), { name: 'AbortError' })
    throw new TypeError('fetch failed', { cause: signal.reason })
  })
  assert.equal(times, 5)
  assert.deepEqual(fences, [...new Set(fences)].sort((one, other) => one - other))
  assert.equal(client.stats().losses, 4)
  // Another error is not hidden by the loss, nor is the loss of another lease.
  const mine = async (lease) => {
    await client.forceRelease('r')
    await aborted(lease.signal)
    throw new RangeError('mine')
  }
  await assert.rejects(client.elect('r', { ttl: 2_000 }, mine), /mine/)
  const others = async () => {
    const lease = await client.lock('other')
    await lease.release()
    lease.check()
  }
  await assert.rejects(client.elect('r', others), LeaseLostError)
  await until(() => isFree(servers))
})

test('a signal ends the candidacy, and tells the leader', async (t) => {
  const { servers, client } = await open(t, 3)
  const ending = new AbortController()
  const leading = client.elect('r', { signal: ending.signal }, async (lease, signal) => {
    const candidacy = client.elect('r', { signal: ending.signal, holder: 'b' }, () => assert.fail('it is never elected'))
    const refused = assert.rejects(candidacy, /enough/)
    await listening(servers, 'b')
    assert(!signal.aborted)
    setImmediate(() => ending.abort(new RangeError('enough')))
    await aborted(signal)
    assert(lease.valid && signal.reason === ending.signal.reason)
    await refused
    return 'done'
  })
  assert.equal(await leading, 'done')
  await listening(servers, 'b', 0)
  await until(() => isFree(servers))
  await assert.rejects(client.elect('r', { signal: ending.signal }, assert.fail), /enough/)
  await assert.rejects(client.watch('r', { signal: ending.signal }).next(), /enough/)
})

test('an election keeps the options that it was called with', async (t) => {
  const { client } = await open(t, 3)
  const ending = new AbortController()
  const options = { signal: ending.signal }
  const leading = client.elect('r', options, async (lease) => {
    assert(await client.forceRelease('r'))
    await aborted(lease.signal)
  })
  options.signal = undefined
  const held = await client.lock('r', { wait: 60_000 })
  await until(async () => (await client.status('r')).waiters === 1)
  ending.abort(new RangeError('enough'))
  await assert.rejects(leading, /enough/)
  assert(await held.release())
})

test('an observer iterates over the leaders', async (t) => {
  const { servers, client } = await open(t, 3)
  const observer = new Client(servers.urls)
  t.after(() => observer.close())
  const stop = new AbortController()
  const names = ['a', 'b', '']
  const seen = []
  let lease = await client.lock('r', { holder: names[0] })
  await assert.rejects(async () => {
    for await (const { holder, fence } of observer.watch('r', { signal: stop.signal })) {
      seen.push(holder)
      assert.equal(fence, lease.fence)
      await lease.release()
      if (seen.length === names.length) stop.abort(new RangeError('enough'))
      else lease = await client.lock('r', { holder: names[seen.length] })
    }
  }, /enough/)
  assert.deepEqual(seen, names)
  lease = await client.lock('r', { holder: 'd' })
  for await (const leader of observer.watch('r')) {
    assert.deepEqual(leader, { holder: 'd', fence: lease.fence })
    break
  }
  const leaders = observer.watch('r')
  await leaders.next()
  const refused = assert.rejects(leaders.next(), { code: 'CLOSED' })
  await observer.close()
  await refused
})

test('an observer can be ended while it waits', async (t) => {
  const { servers, client } = await open(t, 3)
  for (const options of [undefined, { signal: new AbortController().signal }]) {
    for (const end of ['return', 'throw']) {
      const leaders = client.watch('r', options)
      const waiting = leaders.next()
      const ended = leaders[end](new RangeError('enough'))
      assert.deepEqual(await waiting, { value: undefined, done: true })
      await (end === 'return' ? ended : assert.rejects(ended, /enough/))
      assert.equal((await leaders.next()).done, true)
    }
  }
  // Also when a leader arrives meanwhile, and another `next` follows.
  const held = await client.lock('r')
  const signal = { aborted: false, addEventListener() {}, removeEventListener: () => void (ended ??= leaders.return()) }
  let ended
  const leaders = client.watch('r', { signal })
  const [found, after] = await Promise.all([leaders.next(), leaders.next()])
  assert.deepEqual([found.value.fence, after.done, (await ended).done], [held.fence, true, true])
  await held.release()
  const unused = client.watch('r')
  assert.equal((await unused.return()).done, true)
  const program = `
    import { Client } from 'quorlock'
    const leaders = new Client(process.argv.slice(1)).watch('r')
    leaders.next()
    setTimeout(() => leaders.return(), 50)`
  assert.equal(await runModule(program, servers), '')
})

test('a leader that only waits for its signal keeps the process alive', async (t) => {
  const { servers } = await open(t, 3)
  const program = `
    import { Client } from 'quorlock'
    const client = new Client(process.argv.slice(1), { ttl: 2_000 })
    let terms = 0
    const led = await client.elect('r', async (lease, signal) => {
      if (++terms === 2) return 'led'
      await client.forceRelease('r')
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
    })
    console.log(led)`
  assert.equal(await runModule(program, servers), 'led\n')
})

test('mistakes are a ConfigError', async (t) => {
  const { client } = await open(t, 3)
  const lead = () => assert.fail('it never leads')
  const wrong = [
    [() => client.elect('r'), /elect needs a function to run as the leader, as its last argument, not undefined/],
    [() => client.elect(7, lead), /the resource must be a string, not 7/],
    [() => client.elect('', lead), /resource/],
    [() => client.elect('r', 7, lead), /options must be a plain object/],
    [() => client.elect('r', { wait: 7 }, lead), /wait is not an option of an election/],
    [() => client.elect('r', { ttl: 0 }, lead), /ttl must be/],
    [() => client.elect('r', function* () {}), /given to `elect` returned a generator/],
    [async () => client.watch(7), /the resource must be a string, not 7/],
    [async () => client.watch(''), /resource/],
    [async () => client.watch('r', { ttl: 7 }), /ttl is not an option here; it can be signal/],
  ]
  for (const [call, message] of wrong) {
    await assert.rejects(call, (error) => error instanceof ConfigError && message.test(error.message))
  }
  const lease = await client.lock('r')
  for (const successor of [undefined, null, 7, Buffer.from('b'), '\n', '\ud800']) {
    await assert.rejects(lease.handOver(successor), /successor must be/)
  }
  for (const options of [{ within: 1 }, { within: '30' }, { ttl: 30_000 }, 30_000]) {
    await assert.rejects(lease.handOver('b', options), ConfigError)
  }
  assert.equal(await lease.handOver(''), false)
  assert(await lease.release())
  await assert.rejects(lease.handOver('b'), LeaseLostError)
})
