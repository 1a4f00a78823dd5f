// Leases that are held for a long time, lost or garbage-collected, and processes and workers that end.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { test } from 'node:test'
import { Worker } from 'node:worker_threads'
import { Client, LeaseLostError } from 'quorlock'
import { open, runModule, stall, steal, until } from './servers.js'

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

test('a lease is renewed while the event loop is blocked', async (t) => {
  const { client } = await open(t, 3, { ttl: 2_000 })
  await client.using('r', async (lease) => {
    stall(2_500)
    assert(lease.valid)
    await sleep(1)
    assert(!lease.signal.aborted)
  })
})

test('the signal aborts when the lease is lost, with the error as its reason', async (t) => {
  const { servers, client } = await open(t, 3, { ttl: 3_000 })
  const lease = await client.lock('r')
  const { signal } = lease
  assert.equal(lease.signal, signal)
  const aborted = once(signal, 'abort')
  await steal(servers, 'r')
  await aborted
  assert(signal.reason instanceof LeaseLostError)
  assert.match(signal.reason.message, /majority/)
  assert.deepEqual(signal.reason.resources, ['r'])
  assert(!lease.valid)
  assert.equal(await lease.release(), false)
  assert.equal(await servers.command(0, 'GET', 'r'), 'thief')
})

test('a loss is visible at once after a blocked event loop', async (t) => {
  const { servers, client } = await open(t, 3, { ttl: 300, autoExtend: false })
  const lease = await client.lock('r')
  assert(!lease.signal.aborted)
  stall(400)
  assert(!lease.valid)
  assert.throws(() => lease.check(), LeaseLostError)
  assert(lease.signal.aborted)
  assert.equal(await lease.release(), false)
  await until(() => servers.isFree('r'))
})

test('the signal of a lost lease is already aborted when first read', async (t) => {
  const { servers, client } = await open(t, 3, { ttl: 2_000 })
  const lease = await client.lock('r')
  await steal(servers, 'r')
  await until(() => !lease.valid)
  assert(lease.signal.aborted)
  assert(lease.signal.reason instanceof LeaseLostError)
})

test('the signal of a released lease never aborts', async (t) => {
  const { client } = await open(t, 3, { ttl: 200 })
  const lease = await client.lock('r')
  const { signal } = lease
  const aborted = []
  signal.addEventListener('abort', () => aborted.push('abort'))
  assert(await lease.release())
  await sleep(300)
  assert.deepEqual(aborted, [])
  assert(!lease.signal.aborted)
})

test('closing the client aborts the work', async (t) => {
  const { client } = await open(t)
  const work = client.using('r', async (lease) => {
    const { signal } = lease
    setImmediate(() => client.close())
    await once(signal, 'abort')
    signal.throwIfAborted()
  })
  await assert.rejects(work, { code: 'LEASE_LOST', message: /client was closed/ })
})

test('using reports a loss, but does not replace an error of the work', async (t) => {
  const { servers, client } = await open(t, 3, { ttl: 2_000 })
  const ignoring = client.using('r', async (lease) => {
    await steal(servers, 'r')
    await until(() => lease.signal.aborted)
    return 'done despite the loss'
  })
  await assert.rejects(ignoring, LeaseLostError)
  const own = new Error('work')
  const failing = client.using('s', async (lease) => {
    await steal(servers, 's')
    await until(() => lease.signal.aborted)
    throw own
  })
  await assert.rejects(failing, own)
})

/** The first lines of programs that drop references to leases, for runModule with --expose-gc. */
const FORGET = `
  import { Client } from 'quorlock'
  import { setTimeout as sleep } from 'node:timers/promises'
  const open = (options) => new Client(process.argv.slice(1), options)
  const warnings = []
  process.removeAllListeners('warning')
  process.on('warning', (warning) => warnings.push(warning))
  async function until(condition) {
    while (!(await condition())) {
      // An object whose WeakRef the condition has read stays alive until this turn of the event
      // loop ends, so let the turn end before the collection.
      await sleep(5)
      gc()
    }
  }`

test('a garbage-collected lease emits a warning, and its key stays until it expires', async (t) => {
  const { servers } = await open(t)
  const program = `${FORGET}
    const client = open({ ttl: 1_500 })
    const other = open({ wait: 0, nodeTimeout: 10_000 })
    const began = performance.now()
    const { fence } = await client.lock('r')
    await until(() => warnings.length > 0)
    let refused = 0
    for (;;) {
      const tried = performance.now()
      const lease = await other.lock('r').catch((error) => error)
      if (lease.code === 'TIMEOUT') {
        refused++
        continue
      }
      // The key expires at least 1,500 ms after the acquire. The limit is lower because a request
      // reaches the nodes some time after it is started.
      if (tried - began < 1_400) console.log('won too early', lease)
      if (lease.fence <= fence) console.log('fence', lease.fence)
      await lease.release()
      break
    }
    const [{ name, code, message, resource, resources, ...rest }] = warnings
    console.log(JSON.stringify([name, code, resource, resources, rest.fence === fence, message.includes('"r"'), message.includes(fence)]))
    console.log(refused > 0, warnings.length, client.stats().dropped, client.stats().held)`
  const expected = '["QuorlockWarning","LEASE_DROPPED","r",["r"],true,true,true]\ntrue 1 1 0\n'
  assert.equal(await runModule(program, servers, '--expose-gc'), expected)
})

test('listeners keep a lease alive, and are called at its loss', async (t) => {
  const { servers } = await open(t)
  const program = `${FORGET}
    const client = open({ ttl: 2_000 })
    const heard = []
    async function forget(key, listen) {
      const { signal } = await client.lock(key)
      listen(signal, () => heard.push(key))
    }
    await forget('listener', (signal, hear) => signal.addEventListener('abort', hear))
    await forget('any', (signal, hear) => AbortSignal.any([signal]).addEventListener('abort', hear))
    await forget('nested', (signal, hear) => {
      const inner = AbortSignal.any([signal, new AbortController().signal])
      AbortSignal.any([inner]).addEventListener('abort', hear)
    })
    await forget('sleep', (signal, hear) => sleep(1e9, undefined, { signal, ref: false }).catch(hear))
    // Longer than the ttl, so the leases must be renewed.
    const end = performance.now() + 2_500
    await until(() => performance.now() > end)
    console.log(heard.length, warnings.length, client.stats().held)
    for (const key of ['listener', 'any', 'nested', 'sleep']) console.log(await client.locked(key))
    await client.close()
    await until(() => heard.length === 4)
    console.log(heard.sort().join(), warnings.length)`
  const expected = '0 0 4\ntrue\ntrue\ntrue\ntrue\nany,listener,nested,sleep 0\n'
  assert.equal(await runModule(program, servers, '--expose-gc'), expected)
})

test('an unreferenced lease whose signal was read is lost after maxHold', async (t) => {
  const { servers } = await open(t)
  const program = `${FORGET}
    const client = open({ ttl: 2_000, maxHold: 3_000 })
    let reason
    async function forget() {
      const { signal } = await client.lock('r')
      signal.addEventListener('abort', () => (reason = signal.reason))
    }
    await forget()
    await until(() => reason)
    console.log(reason.code, reason.message.includes('at most'), warnings.length)`
  assert.equal(await runModule(program, servers, '--expose-gc'), 'LEASE_LOST true 0\n')
})

test('leases and signals can be garbage-collected after release or loss', async (t) => {
  const { servers } = await open(t)
  const program = `${FORGET}
    const client = open({ ttl: 300, autoExtend: false })
    const refs = []
    async function hold(key, end) {
      const lease = await client.lock(key)
      refs.push(new WeakRef(lease), new WeakRef(lease.signal))
      lease.signal.addEventListener('abort', () => {})
      await end(lease)
    }
    for (let turn = 0; turn < 50; turn++) {
      await hold('released' + turn, (lease) => lease.release())
      await hold('disposed' + turn, (lease) => lease[Symbol.asyncDispose]())
      await hold('lost' + turn, () => {})
    }
    await client.using('used', async (lease) => refs.push(new WeakRef(lease), new WeakRef(lease.signal)))
    await until(() => refs.every((ref) => ref.deref() === undefined))
    console.log(refs.length, warnings.length, client.stats().dropped)`
  assert.equal(await runModule(program, servers, '--expose-gc'), '302 0 0\n')
})

test('an aborted acquire does not emit a warning about a garbage-collected lease', async (t) => {
  const { servers } = await open(t)
  const program = `${FORGET}
    const client = open({ ttl: 600_000 })
    for (let turn = 0; turn < 100; turn++) {
      const controller = new AbortController()
      const waiting = client.lock('r' + turn, { signal: controller.signal })
      waiting.catch(() => {}) // Otherwise a lease that is awaited only later causes another warning.
      for (let count = 0; count < turn % 10; count++) await new Promise(setImmediate)
      controller.abort()
      await waiting.then((lease) => lease.release(), () => {})
    }
    for (let turn = 0; turn < 100; turn++) await until(async () => !(await client.locked('r' + turn)))
    console.log(warnings.length, client.stats().dropped)`
  assert.equal(await runModule(program, servers, '--expose-gc'), '0 0\n')
  assert(await servers.isEmpty())
})

test('a worker warns of a garbage-collected lease, and releases its other leases when terminated', async (t) => {
  const { servers, client } = await open(t)
  const { worker, message } = await startWorker(
    `require('node:v8').setFlagsFromString('--expose-gc')
     const gc = require('node:vm').runInNewContext('gc')
     process.on('warning', ({ code, resource }) => parentPort.postMessage([code, resource]))
     client.lock('listened').then((lease) => {
       lease.signal.addEventListener('abort', () => {})
       client.lock('forgotten').then(() => {})
     })
     setInterval(gc, 5)`,
    servers,
  )
  assert.deepEqual(message, ['LEASE_DROPPED', 'forgotten'])
  assert(await client.locked('forgotten'))
  assert(await client.locked('listened'))
  await worker.terminate()
  await until(() => servers.isFree('listened'))
  assert(await client.locked('forgotten'))
})

test('a process that exits releases its leases', async (t) => {
  const { servers } = await open(t)
  const program = `
    import { Client } from 'quorlock'
    const client = new Client(process.argv.slice(1), { ttl: 600_000 })
    const leases = await Promise.all([1, 2, 3].map((number) => client.lock('r' + number)))
    leases[0].signal.addEventListener('abort', () => console.log('aborted'))
    console.log('leaving')`
  assert.equal(await runModule(program, servers), 'leaving\n')
  assert(await servers.isEmpty())
  assert.equal(await runModule(`${program}; process.exit(0)`, servers), 'leaving\n')
  assert(await servers.isEmpty())
})

test('work at exit can acquire, extend and release', async (t) => {
  const { servers } = await open(t)
  const program = `
    import { Client } from 'quorlock'
    // Registered before the client's own listener, which releases all leases.
    process.on('exit', () => {
      console.log('exit', kept.valid)
      kept.release()
    })
    const client = new Client(process.argv.slice(1), { ttl: 600_000 })
    const kept = await client.lock('kept')
    const work = async (name) => {
      console.log(name, await client.using(name, async (lease) => (await lease.extend(), lease.valid)))
    }
    process.once('SIGTERM', async () => {
      await work('signal')
      clearInterval(running)
    })
    process.once('beforeExit', () => work('beforeExit'))
    const running = setInterval(() => {}, 1_000)
    process.kill(process.pid, 'SIGTERM')`
  assert.equal(await runModule(program, servers), 'signal true\nbeforeExit true\nexit true\n')
  assert(await servers.isEmpty())
})

test('a listener of exit that runs after the release is told that the lease has ended', async (t) => {
  const { servers } = await open(t)
  const program = `
    import { Client } from 'quorlock'
    const client = new Client(process.argv.slice(1), { ttl: 600_000 })
    const lease = await client.lock('r')
    process.on('exit', () => {
      try {
        lease.check()
      } catch (error) {
        console.log(error.code, lease.valid)
      }
      lease.release()
      client.close()
      new Client(process.argv.slice(1)).lock('r').catch(() => {})
    })`
  assert.equal(await runModule(program, servers), 'LEASE_LOST false\n')
  assert(await servers.isEmpty())
})

test('a process that exits while it holds and awaits a lock leaves no key', async (t) => {
  const { servers } = await open(t)
  const program = `
    import { Client } from 'quorlock'
    const clients = [1, 2].map(() => new Client(process.argv.slice(1), { ttl: 600_000, wait: Infinity }))
    const lease = await clients[0].lock('r')
    for (const client of [...clients, ...clients]) client.lock('r').catch(() => {})
    const waiters = () => clients.reduce((all, client) => all + client.stats().waiting, 0)
    while (waiters() < 4) await new Promise((resolve) => setTimeout(resolve, 5))
    await new Promise((resolve) => setTimeout(resolve, 50))
    console.log(lease.valid)
    process.exit(0)`
  for (let turn = 0; turn < 3; turn++) {
    assert.equal(await runModule(program, servers), 'true\n')
    assert(await servers.isEmpty())
  }
})

test('work under a lock that only waits for its signal keeps the process alive', async (t) => {
  const { servers } = await open(t, 3)
  const program = `
    import { Client } from 'quorlock'
    const client = new Client(process.argv.slice(1), { ttl: 3_000, nodeTimeout: 900 })
    const lost = (lease) => new Promise((resolve) => lease.signal.addEventListener('abort', resolve))
    const uses = [
      (work) => client.using('r', work),
      (work) => client.using('r', { mode: 'shared' }, work),
      (work) => client.semaphore('r', { limit: 1, maxHold: 300 }).using(work),
    ]
    for (const use of uses) {
      const work = async (lease) => {
        if (lease.slots.length === 0) await client.forceRelease('r')
        await lost(lease)
      }
      await use(work).catch((error) => console.log(error.code))
    }`
  assert.equal(await runModule(program, servers), 'LEASE_LOST\nLEASE_LOST\nLEASE_LOST\n')
})

test('a process that exits amid a detach releases the lease', async (t) => {
  const { servers } = await open(t, 3)
  const program = `
    import { Client } from 'quorlock'
    const client = new Client(process.argv.slice(1), { ttl: 600_000 })
    const lease = await client.lock('r')
    lease.detach({ within: 600_000 })`
  // The text exists, but its promise is not settled before the event loop runs again.
  const late = 'while (client.stats().detached === 0);'
  for (const moment of ['', late]) {
    assert.equal(await runModule(`${program}\n${moment}\nprocess.exit(0)`, servers), '')
    assert(await servers.isEmpty())
  }
})

test('a process with a lease exits although no node answers', async (t) => {
  const { servers } = await open(t)
  const program = `
    import { Client } from 'quorlock'
    const client = new Client(process.argv.slice(1), { ttl: 600_000 })
    const lease = await client.lock('r')
    console.log('held')
    await new Promise((go) => process.stdin.once('data', go))
    process.stdin.destroy()`
  const args = ['--input-type=module', '--eval', program, '--', ...servers.urls]
  const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] })
  const ended = once(child, 'exit')
  await once(child.stdout, 'data')
  for (const node of servers.all.keys()) await servers.ask({ freeze: node })
  const began = performance.now()
  child.stdin.write('go\n')
  assert.deepEqual(await ended, [0, null])
  // The exit takes about 0.5 s on an idle machine. The limit allows for a heavily loaded one.
  assert(performance.now() - began < 20_000)
  for (const node of servers.all.keys()) await servers.ask({ thaw: node })
})

/**
 * Starts a worker that has a client of the servers. Returns the worker, its first message and a
 * promise of its exit.
 */
async function startWorker(program, servers) {
  const worker = new Worker(
    `const { parentPort, workerData } = require('node:worker_threads')
     const { Client } = require('quorlock')
     const client = new Client(workerData, { ttl: 600_000 })
     ${program}`,
    { eval: true, workerData: servers.urls },
  )
  // Listen for the exit before the first message arrives: the worker may post the message and exit
  // in the same turn of the event loop.
  const exited = once(worker, 'exit')
  const [message] = await once(worker, 'message')
  return { worker, message, exited }
}

test('a terminated worker releases its leases and stops waiting', async (t) => {
  const { servers, client } = await open(t, 3, { ttl: 600_000, nodeTimeout: 10_000 })
  const lease = await client.lock('awaited')
  for (let turn = 0; turn < 10; turn++) {
    const { worker } = await startWorker(
      `client.lock('held').then((lease) => {
         globalThis.lease = lease
         lease.signal.addEventListener('abort', () => {})
         client.lock('awaited', { wait: null })
         setTimeout(() => parentPort.postMessage('waiting'), 20)
       })`,
      servers,
    )
    assert(await client.locked('held'))
    await worker.terminate()
    await until(() => servers.isFree('held'))
  }
  assert(await lease.release())
  await until(() => servers.isFree('awaited'))
  // The lock must stay free: no waiter of a terminated worker may acquire it.
  for (let turn = 0; turn < 30; turn++) {
    assert(!(await client.locked('awaited')))
    await sleep(10)
  }
})

test('a worker that exits releases its own leases, and no others', async (t) => {
  const { servers, client } = await open(t, 3, { ttl: 600_000 })
  const lease = await client.lock('mine')
  const { message, exited } = await startWorker(
    `client.lock('held').then((lease) => {
       globalThis.lease = lease
       parentPort.postMessage(lease.valid)
     })`,
    servers,
  )
  assert.equal(message, true)
  await exited
  await until(() => servers.isFree('held'))
  assert(lease.valid)
  assert(await lease.release())
})

test('a worker that is terminated before its leases are delivered leaves no key', async (t) => {
  const { servers, client } = await open(t, 3, { ttl: 600_000 })
  for (let turn = 0; turn < 5; turn++) {
    // The worker's event loop is blocked, so the leases cannot be delivered.
    const { worker } = await startWorker(
      `for (let number = 0; number < 8; number++) client.lock('w' + number)
       parentPort.postMessage('begun')
       for (;;);`,
      servers,
    )
    for (let number = 0; number < 8; number++) await until(() => client.locked(`w${number}`))
    await worker.terminate()
    await until(() => servers.isEmpty())
  }
})

test('a worker that is terminated before the text of a detached lease is delivered leaves no key', async (t) => {
  const { servers, client } = await open(t, 3, { ttl: 600_000 })
  for (let turn = 0; turn < 5; turn++) {
    const { worker } = await startWorker(
      `client.lock('r').then((lease) => {
         lease.detach({ within: 600_000 })
         while (client.stats().detached === 0);
         parentPort.postMessage('detached')
         for (;;);
       })`,
      servers,
    )
    assert(await client.locked('r'))
    await worker.terminate()
    await until(() => servers.isEmpty())
  }
})

test('an acquire keeps a worker alive until it ends', async (t) => {
  const { servers, client } = await open(t, 3)
  const lease = await client.lock('r')
  const { worker, exited } = await startWorker(
    `parentPort.postMessage('waiting')
     client.lock('r').then((lease) => lease.release()).then((released) => parentPort.postMessage(released))`,
    servers,
  )
  const released = once(worker, 'message')
  await sleep(200)
  assert(await lease.release())
  assert.deepEqual(await released, [true])
  assert.deepEqual(await exited, [0])
})

test('terminating workers at any moment neither crashes nor leaves keys', async (t) => {
  const { servers, client } = await open(t, 3, { ttl: 600_000 })
  for (let turn = 0; turn < 20; turn++) {
    const { worker } = await startWorker(
      `;(async () => {
         parentPort.postMessage('begun')
         for (;;) {
           const leases = await Promise.all([1, 2, 3, 4].map((number) => client.lock('w' + number)))
           await Promise.all(leases.map((lease) => lease.release()))
         }
       })()`,
      servers,
    )
    await sleep(Math.random() * 5)
    await worker.terminate()
    assert(await (await client.lock('r')).release())
  }
  await until(() => servers.isEmpty())
})
