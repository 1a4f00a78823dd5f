// The JavaScript API of the lock, on real servers.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { getEventListeners } from 'node:events'
import { createRequire } from 'node:module'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { Client, ClosedError, ConfigError, LeaseLostError, LockTimeoutError } from 'quorlock'
import { Servers, open, stall, steal, until } from './servers.js'

const run = promisify(execFile)

test('using holds the lock while the work runs, and returns its result', async (t) => {
  const { servers, client } = await open(t)
  const result = await client.using('r', { wait: 0 }, async (lease) => {
    assert(lease.valid)
    assert(await client.locked('r'))
    await assert.rejects(client.lock('r', { wait: 0 }), LockTimeoutError)
    return 42
  })
  assert.equal(result, 42)
  assert.equal(await client.using('r', () => 'sync'), 'sync')
  await assert.rejects(client.using('r'), ConfigError)
  await until(() => servers.isFree('r'))
})

test('using releases the lock when the work throws, and throws the same error', async (t) => {
  const { servers, client } = await open(t)
  const reason = new Error('work')
  await assert.rejects(client.using('r', () => Promise.reject(reason)), reason)
  await until(() => servers.isFree('r'))
})

test('operations that continue in one iteration of the event loop send their requests together', async (t) => {
  const servers = await Servers.start(t, 1)
  const client = new Client(servers.urls)
  const scripts = async () => {
    const stats = await servers.command(0, 'INFO', 'commandstats')
    return Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)[1])
  }
  const cycle = async (number) => {
    await client.locked(`r${number}`)
    return client.lock(`r${number}`)
  }
  await (await client.lock('first')).release()
  // On a loaded machine, the last result may arrive late, or the iteration may take too long.
  await until(async () => {
    const before = await scripts()
    const cycles = Array.from({ length: 8 }, (_, number) => cycle(number))
    stall(100) // meanwhile, the results of all `locked` calls arrive
    const leases = await Promise.all(cycles) // `locked` runs no script
    const commands = (await scripts()) - before
    for (const lease of leases) await lease.release()
    return commands === 1
  })
})

test('using reports a lost lease, unless the work threw', async (t) => {
  const { servers, client } = await open(t)
  await assert.rejects(client.using('r', () => steal(servers, 'r')), LeaseLostError)
  const reason = new Error('work')
  const work = async () => {
    await steal(servers, 's')
    throw reason
  }
  await assert.rejects(client.using('s', work), reason)
  assert.equal(await servers.command(0, 'GET', 'r'), 'thief')
})

test('disposing of a lease releases it, and reports a loss', async (t) => {
  const { servers, client } = await open(t)
  const lease = await client.lock('r')
  await lease[Symbol.asyncDispose]()
  assert(!lease.valid)
  await lease[Symbol.asyncDispose]()
  await until(() => servers.isFree('r'))
  const lost = await client.lock('r')
  await steal(servers, 'r')
  await assert.rejects(lost[Symbol.asyncDispose](), LeaseLostError)
})

test('an aborted signal ends the wait with its reason', async (t) => {
  const { servers, client } = await open(t)
  const lease = await client.lock('r')
  const reason = new Error('enough')
  await assert.rejects(client.lock('r', { signal: AbortSignal.abort(reason) }), reason)
  const controller = new AbortController()
  const waiting = client.lock('r', { wait: null, signal: controller.signal })
  setTimeout(() => controller.abort(reason), 20)
  await assert.rejects(waiting, reason)
  assert(await lease.release())
  await until(() => servers.isFree('r'))
})

test('an aborted waiter leaves the queues of the nodes', async (t) => {
  const never = 600_000
  const { servers, client } = await open(t, 3, { ttl: never, wait: never, retryDelay: [never, never] })
  const queued = async (count) => {
    for (const node of servers.all.keys()) {
      await until(async () => (await servers.command(node, 'ZCARD', '{r}:queue')) === count)
    }
  }
  const lease = await client.lock('r')
  const controller = new AbortController()
  const waiting = assert.rejects(client.lock('r', { signal: controller.signal }), { name: 'AbortError' })
  await queued(1)
  controller.abort()
  await waiting
  await queued(0)
  assert(await lease.release())
})

test('a signal has no listener left when the acquire is over', async () => {
  const client = new Client(['memory://listeners'])
  const { signal } = new AbortController()
  const count = () => getEventListeners(signal, 'abort').length
  const lease = await client.lock('r', { signal })
  assert.equal(count(), 0)
  const waiting = client.lock('r', { wait: 0, signal })
  assert.equal(count(), 1)
  await assert.rejects(waiting, LockTimeoutError)
  assert.equal(count(), 0)
  assert(await lease.release())
})

test('acquires aborted at random moments leave no key', async (t) => {
  const { servers, client } = await open(t, 5, { ttl: 600_000 })
  let aborted = 0
  for (let round = 0; round < 1_000; round++) {
    const controller = new AbortController()
    const waiting = client.lock(`r${round}`, { signal: controller.signal })
    const turns = Math.floor(Math.random() * 30)
    for (let turn = 0; turn < turns; turn++) await new Promise(setImmediate)
    controller.abort()
    await waiting.then(
      (lease) => lease.release(),
      (error) => {
        assert.equal(error, controller.signal.reason)
        aborted++
      },
    )
  }
  assert(aborted > 0)
  await until(() => servers.isEmpty())
})

test('an acquire that is aborted after its result has arrived leaves no key', async (t) => {
  const { servers, client } = await open(t, 3, { ttl: 600_000 })
  assert(await (await client.lock('r')).release())
  for (let round = 0; round < 20; round++) {
    const controller = new AbortController()
    const waiting = client.lock('r', { signal: controller.signal })
    // The event loop is blocked, so the result arrives but cannot be delivered.
    stall(20)
    controller.abort()
    await assert.rejects(waiting, controller.signal.reason)
    await until(() => servers.isFree('r'))
  }
})

test('results that arrive together are delivered to the right callers', async (t) => {
  const { servers, client } = await open(t, 3, { nodeTimeout: 10_000 })
  await steal(servers, 'stolen')
  const names = Array.from({ length: 200 }, (_, number) => `r${number}`)
  const acquiring = names.map((name) => client.lock(name))
  const failing = assert.rejects(client.lock('stolen', { wait: 0 }), LockTimeoutError)
  stall(200)
  const leases = await Promise.all(acquiring)
  await failing
  assert.deepEqual(leases.map((lease) => lease.resources[0]), names)
  assert(leases.every((lease) => lease.valid))
  const releasing = leases.map((lease) => lease.release())
  stall(200)
  assert((await Promise.all(releasing)).every((released) => released))
})

test('the stack of an error shows the caller, even if nothing awaits the promise', async () => {
  const client = new Client(['memory://stacks'])
  const lease = await client.lock('r')
  const closed = new Client(['memory://stacks'])
  await closed.close()
  const calls = {
    lock: function caller() {
      return client.lock('r', { wait: 0 })
    },
    using: function caller() {
      return client.using('r', { wait: 0 }, () => {})
    },
    locked: function caller() {
      return closed.locked('r')
    },
    doctor: function caller() {
      return closed.doctor()
    },
    extend: function caller() {
      return lease.extend(1)
    },
  }
  for (const [name, call] of Object.entries(calls)) {
    const failing = call()
    // V8's asynchronous stack traces do not follow this promise, so quorlock must add the caller.
    const error = await new Promise((resolve) => failing.catch(resolve))
    const [header, ...frames] = error.stack.split('\n')
    assert.equal(header, String(error), name)
    assert(frames.some((frame) => /caller .*lock\.test\.js/.test(frame)), error.stack)
  }
  assert(await lease.release())
})

test('closing a client ends waiters and leases', async (t) => {
  const { client } = await open(t)
  const lease = await client.lock('r')
  const waiting = assert.rejects(client.lock('r', { wait: null }), ClosedError)
  await client.close()
  await waiting
  assert(!lease.valid)
  await client.close()
})

test('the package can be required', () => {
  const required = createRequire(import.meta.url)('quorlock')
  assert.equal(required.Client, Client)
})

test('a process stays alive for a pending acquire, but not for a held lease', async (t) => {
  const { servers } = await open(t)
  const program = `
    import { Client } from 'quorlock'
    const client = new Client(process.argv.slice(1))
    const lease = await client.lock('r')
    client.lock('r', { wait: 50 }).catch((error) => console.log(error.code))`
  const args = ['--input-type=module', '--eval', program, '--', ...servers.urls]
  const { stdout } = await run(process.execPath, args, { timeout: 60_000 })
  assert.equal(stdout, 'TIMEOUT\n')
})

test('an idle client does not keep the process alive', async (t) => {
  const { servers } = await open(t)
  const program = `
    import { Client } from 'quorlock'
    const client = new Client(process.argv.slice(1))
    const lease = await client.lock('r')
    const controller = new AbortController()
    const waiting = client.lock('r', { wait: null, signal: controller.signal })
    setTimeout(() => controller.abort(), 20)
    await waiting.catch((error) => console.log(error.name))
    console.log(await lease.release())`
  const args = ['--input-type=module', '--eval', program, '--', ...servers.urls]
  const { stdout } = await run(process.execPath, args, { timeout: 60_000 })
  assert.equal(stdout, 'AbortError\ntrue\n')
})
