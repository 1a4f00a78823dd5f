// Waiting on real servers: calls, queues, and what becomes of them when something goes wrong.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Client, ClosedError, LockTimeoutError } from 'quorlock'
import { Servers, until } from './servers.js'

/** Milliseconds: so long that whoever gets the lock within the time of a test was called. */
const NEVER = 600_000
const PATIENT = { ttl: NEVER, wait: NEVER, retryDelay: [NEVER, NEVER] }
/** With the default delays. */
const TRYING = { ttl: NEVER, wait: NEVER }

/** Servers, and so many clients of them, for one test. */
async function open(t, { nodes = 3, clients = 2, options = PATIENT } = {}) {
  const servers = await Servers.start(t, nodes)
  const connect = (urls = servers.urls) => {
    const client = new Client(urls, options)
    t.after(() => client.close())
    return client
  }
  return { servers, connect, clients: Array.from({ length: clients }, () => connect()) }
}

/** Waits until so many are in the queue of each of these nodes; of all, if none are named. */
async function queued(servers, count, nodes = [...servers.all.keys()]) {
  for (const node of nodes) {
    await until(async () => (await servers.command(node, 'ZCARD', '{r}:queue')) === count)
  }
}

/** How many connections listen for the calls of each node. */
async function listening(servers) {
  const counts = []
  for (const node of servers.all.keys()) {
    const clients = await servers.command(node, 'CLIENT', 'LIST', 'TYPE', 'pubsub')
    counts.push(clients.split(' addr=').length - 1)
  }
  return counts
}

/** Waits until so many connections listen for the calls of each node. */
async function listened(servers, count) {
  await until(async () => (await listening(servers)).every((each) => each === count))
}

/** What a promise gives, which must not take long. */
async function soon(promise) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error('it takes too long')), 60_000)
  })
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}

/** Gets the lock and releases it. */
async function served(waiting) {
  const lease = await soon(waiting)
  assert(await lease.release())
}

test('a release calls the waiter', async (t) => {
  const { servers, clients } = await open(t)
  const [holder, waiter] = clients
  for (let round = 0; round < 10; round++) {
    const lease = await holder.lock('r')
    const waiting = waiter.lock('r')
    await queued(servers, 1)
    assert(await lease.release())
    await served(waiting)
    await until(() => servers.isEmpty())
  }
})

test('a release at any moment is not missed', async (t) => {
  const { servers, connect, clients } = await open(t, { clients: 1 })
  for (let round = 0; round < 10; round++) {
    // A new client has no connections yet.
    const waiter = connect()
    for (let turn = 0; turn < 5; turn++) {
      const lease = await clients[0].lock('r')
      const waiting = waiter.lock('r')
      const turns = Math.floor(Math.random() * 50)
      for (let turn = 0; turn < turns; turn++) await new Promise(setImmediate)
      assert(await lease.release())
      await served(waiting)
    }
  }
  await until(() => servers.isEmpty())
})

test('a release calls while a node freezes', async (t) => {
  const { servers, clients } = await open(t)
  const lease = await clients[0].lock('r')
  const waiting = clients[1].lock('r')
  await queued(servers, 1)
  await servers.ask({ freeze: 0 })
  await lease.release()
  await served(waiting)
  await servers.ask({ thaw: 0 })
  await until(() => servers.isEmpty())
})

test('a release calls while two of five are down', async (t) => {
  const { servers, clients } = await open(t, { nodes: 5 })
  const lease = await clients[0].lock('r')
  const waiting = clients[1].lock('r')
  await queued(servers, 1)
  for (const kill of [0, 1]) await servers.ask({ kill })
  await lease.release()
  await served(waiting)
})

test('a waiter comes back to a node that restarted', async (t) => {
  const { servers, clients } = await open(t, { options: TRYING })
  const lease = await clients[0].lock('r')
  const waiting = clients[1].lock('r')
  await queued(servers, 1)
  await servers.ask({ restart: 0 })
  await listened(servers, 1)
  await queued(servers, 1)
  await lease.release()
  await served(waiting)
})

test('a client waits as one, and serves in order', async (t) => {
  const { servers, clients } = await open(t)
  const [holder, waiter] = clients
  let lease = await holder.lock('r')
  const order = []
  const waiting = Array.from({ length: 200 }, async (_, position) => {
    const lease = await waiter.lock('r')
    order.push(position)
    return lease
  })
  // What begins last has got somewhere, so they all wait.
  await served(waiter.lock('another'))
  await queued(servers, 1)
  assert.deepEqual(await listening(servers), [1, 1, 1])
  assert(await lease.release())
  for (const [position, next] of waiting.entries()) {
    lease = await soon(next)
    assert.equal(order.at(-1), position)
    // The next one; and where it was refused the lock, the one that has it, until it releases it.
    assert((await servers.command(position % 3, 'ZCARD', '{r}:queue')) <= 2)
    assert(await lease.release())
  }
  assert.deepEqual(await listening(servers), [1, 1, 1])
  await until(() => servers.isEmpty())
  // The client is still open.
  await listened(servers, 0)
})

test('an aborted waiter leaves the line and the queue', async (t) => {
  const { servers, clients } = await open(t)
  const [holder, waiter] = clients
  const lease = await holder.lock('r')
  const controllers = [0, 1, 2].map(() => new AbortController())
  const [alone, first, second] = controllers.map(({ signal }) => () => {
    return assert.rejects(waiter.lock('r', { signal }), { name: 'AbortError' })
  })
  const leaving = alone()
  await queued(servers, 1)
  controllers[0].abort()
  await soon(leaving)
  await until(() => servers.isFree('{r}:queue'))
  const others = [first(), second()]
  await queued(servers, 1)
  const third = waiter.lock('r')
  for (const controller of controllers) controller.abort()
  await soon(Promise.all(others))
  await queued(servers, 1)
  assert(await lease.release())
  await served(third)
  await until(() => servers.isEmpty())
})

test('the wait counts from the call, also for those who are not first in line', async (t) => {
  const { servers, clients } = await open(t)
  const [holder, waiter] = clients
  const lease = await holder.lock('r')
  const first = waiter.lock('r')
  await queued(servers, 1)
  const began = performance.now()
  const short = [300, 200, 100].map(async (wait) => {
    const error = await soon(waiter.lock('r', { wait })).catch((error) => error)
    assert(error instanceof LockTimeoutError)
    // Timers have whole milliseconds.
    assert(performance.now() - began >= wait - 1)
    assert.deepEqual(error.nodes.map((node) => node.address), servers.urls)
    assert(error.nodes.filter((node) => node.outcome === 'held').length >= 2)
  })
  const last = waiter.lock('r')
  await Promise.all(short)
  assert(await lease.release())
  await served(first)
  await served(last)
  await until(() => servers.isEmpty())
})

test('a client that is closed lets all go', async (t) => {
  const { servers, clients } = await open(t, { clients: 3 })
  const [holder, waiter, other] = clients
  const lease = await holder.lock('r')
  const waiting = Array.from({ length: 50 }, () => assert.rejects(waiter.lock('r'), ClosedError))
  await queued(servers, 1)
  const last = other.lock('r')
  await queued(servers, 2)
  await waiter.close()
  await soon(Promise.all(waiting))
  await queued(servers, 1)
  await listened(servers, 1)
  assert(await lease.release())
  await served(last)
  await until(() => servers.isEmpty())
})

test('a foreign holder is waited for', async (t) => {
  const { servers, clients } = await open(t, { clients: 1, options: TRYING })
  for (const node of servers.all.keys()) {
    assert.equal(await servers.command(node, 'SET', 'r', 'foreign', 'NX', 'PX', NEVER), 'OK')
  }
  const waiting = clients[0].lock('r')
  await queued(servers, 1)
  for (const node of servers.all.keys()) assert.equal(await servers.command(node, 'DEL', 'r'), 1)
  await served(waiting)
  await until(() => servers.isEmpty())
})

test('without permission for channels waiters try', async (t) => {
  const { servers, connect } = await open(t, { clients: 0, options: TRYING })
  const rights = ['on', '>secret', '~*', '+@all', 'resetchannels']
  for (const node of servers.all.keys()) {
    await servers.command(node, 'ACL', 'SETUSER', 'locker', ...rights)
  }
  const urls = servers.urls.map((url) => url.replace('//', '//locker:secret@'))
  const [holder, waiter] = [connect(urls), connect(urls)]
  const lease = await holder.lock('r')
  const waiting = [1, 2, 3].map(() => waiter.lock('r'))
  // Two rounds at least.
  const held = () => waiter.stats().nodes.map((node) => node.outcomes.held ?? 0)
  await until(() => held().every((count) => count > 1))
  assert(await lease.release())
  for (const each of waiting) await served(each)
  await until(() => servers.isEmpty())
})

test('a waiter without its place in the queues gets the lock', async (t) => {
  const { servers, clients } = await open(t, { options: TRYING })
  const lease = await clients[0].lock('r')
  const waiting = [1, 2, 3].map(() => clients[1].lock('r'))
  await queued(servers, 1)
  for (const node of servers.all.keys()) {
    const [name] = await servers.command(node, 'ZRANGE', '{r}:queue', 0, 0)
    await servers.command(node, 'DEL', '{r}:queue')
    for (const forged of ['nonsense', 'nobody#1', name.replace(/#.*/, '#999999')]) {
      await servers.command(node, 'ZADD', '{r}:queue', 1, forged)
    }
  }
  assert(await lease.release())
  for (const each of waiting) await served(each)
  await until(() => servers.isEmpty())
})
