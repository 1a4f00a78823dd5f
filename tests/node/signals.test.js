// Abort signals: the signal of a lease, which reports its loss, and those that cancel acquires.

import assert from 'node:assert/strict'
import { getEventListeners, once } from 'node:events'
import { createServer } from 'node:http'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { Client, LeaseLostError } from 'quorlock'
import { open, runModule, stall, until } from './servers.js'

/** Returns a lease that has just expired or is about to expire. */
async function shortLease(client, number) {
  const lease = await client.lock(`r${number}`, { ttl: 20, autoExtend: false })
  const left = lease.remaining
  // The remaining time varies with `number`: some leases expire before, some during and some after
  // the code of the test.
  stall(Math.max(0, left - 0.2 + (number % 20) / 50))
  return lease
}

test('a listener added in the turn in which the signal is read is always called', async () => {
  const client = new Client(['memory://signals-listener'])
  const kinds = {
    'after reading aborted': (lease, listener) => {
      if (lease.signal.aborted) return listener()
      lease.signal.addEventListener('abort', listener)
    },
    'without reading aborted': (lease, listener) => lease.signal.addEventListener('abort', listener),
    'after a pause': (lease, listener) => {
      const { signal } = lease
      if (signal.aborted) return listener()
      stall(0.5)
      lease.signal.addEventListener('abort', listener)
    },
    onabort: (lease, listener) => {
      lease.signal.onabort = listener
    },
    once: (lease, listener) => once(lease.signal, 'abort').then(listener),
    any: (lease, listener) => {
      const either = AbortSignal.any([lease.signal, new AbortController().signal])
      if (either.aborted) return listener()
      either.addEventListener('abort', listener)
    },
  }
  for (const [kind, add] of Object.entries(kinds)) {
    for (let number = 0; number < 40; number++) {
      const lease = await shortLease(client, number)
      await new Promise((called) => {
        const late = setTimeout(() => assert.fail(`${kind}: the listener was not called`), 30_000)
        add(lease, () => {
          clearTimeout(late)
          called()
        })
      })
      assert(lease.signal.aborted)
    }
  }
})

test('aborted is true at once after a loss, and the event follows in a later turn', async () => {
  const client = new Client(['memory://signals-truth'])
  const lease = await client.lock('r', { ttl: 1_000, autoExtend: false })
  const { signal } = lease
  const events = []
  signal.addEventListener('abort', (event) => events.push([event.type, signal.aborted, signal.reason]))
  assert(!signal.aborted)
  assert.equal(signal.reason, undefined)
  signal.throwIfAborted()
  stall(lease.remaining + 1)
  assert(signal.aborted)
  const { reason } = signal
  assert(reason instanceof LeaseLostError)
  assert.throws(() => signal.throwIfAborted(), (error) => error === reason)
  assert.equal(lease.signal, signal)
  assert.deepEqual(events, [])
  await until(() => events.length > 0)
  assert.deepEqual(events, [['abort', true, reason]])
  assert(signal.aborted)
  assert.equal(signal.reason, reason)
  assert.throws(() => signal.throwIfAborted(), (error) => error === reason)
  assert(AbortSignal.any([signal]).aborted)
  // The release must not dispatch the event again.
  assert.equal(await lease.release(), false)
  await sleep(20)
  assert.equal(events.length, 1)
})

test('fetch ends when the lease is lost', async (t) => {
  const client = new Client(['memory://signals-fetch'])
  const server = createServer(() => {}).listen(0, '127.0.0.1')
  t.after(() => server.closeAllConnections())
  t.after(() => server.close())
  await once(server, 'listening')
  const url = `http://127.0.0.1:${server.address().port}/`
  const lease = await client.lock('r', { ttl: 100, autoExtend: false })
  await assert.rejects(fetch(url, { signal: lease.signal }), (error) => error === lease.signal.reason)
  stall(1)
  await assert.rejects(fetch(url, { signal: lease.signal }), LeaseLostError)
})

test('a release that finds the lease lost aborts its signal', async (t) => {
  const { servers, client } = await open(t)
  const lease = await client.lock('r')
  const { signal } = lease
  const aborted = once(signal, 'abort')
  for (const index of servers.all.keys()) {
    await until(() => servers.command(index, 'EXISTS', 'r'))
    await servers.command(index, 'DEL', 'r')
  }
  assert.equal(await lease.release(), false)
  assert(signal.aborted)
  await aborted
  assert.equal(signal.reason.code, 'LEASE_LOST')
})

test('a signal shared by many acquires has one listener, and ends them all', async (t) => {
  const warnings = []
  const warn = (warning) => warnings.push(warning)
  process.on('warning', warn)
  t.after(() => process.off('warning', warn))
  const client = new Client(['memory://signals-shared'])
  const lease = await client.lock('r')
  const controller = new AbortController()
  const { signal } = controller
  const count = () => getEventListeners(signal, 'abort').length
  const short = Array.from({ length: 20 }, () => client.lock('r', { wait: 10, signal }))
  const waiting = Array.from({ length: 20 }, () => client.lock('r', { wait: null, signal }))
  assert.equal(count(), 1)
  await Promise.all(short.map((promise) => assert.rejects(promise, { code: 'TIMEOUT' })))
  assert.equal(count(), 1)
  const reason = new Error('enough')
  controller.abort(reason)
  await Promise.all(waiting.map((promise) => assert.rejects(promise, reason)))
  assert.equal(count(), 0)
  assert(await lease.release())
  assert(!(await client.locked('r')))
  await new Promise(setImmediate)
  assert.deepEqual(warnings, [])
})

test('many copies of the module cause no leak warning, and release all leases at exit', async (t) => {
  const { servers } = await open(t)
  const program = `
    import { loadCopy } from '${new URL('copies.js', import.meta.url)}'
    // Count the listeners first: Node.js itself has one while a module awaits.
    const before = process.listenerCount('exit')
    for (const [number, { Client }] of Array.from({ length: 15 }, loadCopy).entries()) {
      const client = new Client(process.argv.slice(1), { ttl: 600_000 })
      if (number % 7 === 0) await client.lock('r' + number)
    }
    console.log(process.listenerCount('exit') - before)`
  assert.equal(await runModule(program, servers), '1\n')
  assert(await servers.isEmpty())
})

test('a signal of another library may throw or have no reason', async () => {
  const client = new Client(['memory://signals-foreign'])
  const foreign = (own) => ({ aborted: false, addEventListener() {}, removeEventListener() {}, ...own })
  const throwing = foreign({
    addEventListener() {
      throw new RangeError('no listeners')
    },
  })
  await assert.rejects(client.lock('r', { signal: throwing }), RangeError)
  await assert.rejects(client.lock('r', { signal: throwing }), RangeError)
  assert.equal(client.stats().attempts, 0)
  await assert.rejects(client.lock('r', { signal: foreign({ aborted: true }) }), { name: 'AbortError' })
  const secretive = Object.defineProperty(foreign({ aborted: true }), 'reason', { get: assert.fail })
  await assert.rejects(client.lock('r', { signal: secretive }), { name: 'AbortError' })
  let abort
  const signal = foreign({ addEventListener: (_, listener) => (abort = listener) })
  await client.using('r', async () => {
    const waiting = client.lock('r', { signal })
    abort()
    await assert.rejects(waiting, { name: 'AbortError' })
  })
})

test('a signal of another library that throws when its listener is removed loses no result and no lease', async (t) => {
  const client = new Client(['memory://signals-removal'])
  t.after(() => client.close())
  let removals = 0
  const foreign = () => ({
    aborted: false,
    addEventListener() {},
    removeEventListener() {
      removals++
      throw new RangeError('no removal')
    },
  })
  const leases = await Promise.all(['a', 'b', 'c'].map((name) => client.lock(name, { signal: foreign() })))
  assert.deepEqual(await Promise.all(leases.map((lease) => lease.release())), [true, true, true])
  assert.equal(await client.elect('r', { signal: foreign() }, () => 'led'), 'led')
  assert(!(await client.locked('r')))
  assert.equal(removals, 5)
})

test('a signal of another library that ends another acquire when its listener is removed loses no result', async (t) => {
  const client = new Client(['memory://signals-reentrant'], { wait: null })
  t.after(() => client.close())
  const held = await client.lock(['a', 'b', 'c'])
  const other = new AbortController()
  const signal = { aborted: false, addEventListener() {}, removeEventListener: () => other.abort() }
  const waiting = ['a', 'b', 'c'].map((name) => client.lock(name, { signal: name === 'b' ? other.signal : signal }))
  await until(() => client.stats().waiting === 3)
  const released = held.release()
  // The event loop is blocked until all have acquired, so that their results arrive together.
  for (const deadline = performance.now() + 60_000; client.stats().wins < 4; ) assert(performance.now() < deadline)
  assert(await released)
  const [first, , last] = await Promise.allSettled(waiting)
  assert.deepEqual([first.status, last.status], ['fulfilled', 'fulfilled'])
  for (const { value } of [first, last]) assert(await value.release())
})
