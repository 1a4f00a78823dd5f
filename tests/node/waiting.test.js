// Waiting on real servers: notifications and queues, also when nodes or connections fail.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Client, ClosedError, LockTimeoutError } from 'quorlock'
import { Servers, until } from './servers.js'

/** Milliseconds: longer than any test, so a waiter that gets the lock in a test was notified. */
const NEVER = 600_000
const PATIENT = { ttl: NEVER, wait: NEVER, retryDelay: [NEVER, NEVER] }
/** Options with the default retry delay, so that a waiter also retries without a notification. */
const TRYING = { ttl: NEVER, wait: NEVER }

/** Starts servers and opens clients of them, for one test. */
async function open(t, { nodes = 3, clients = 2, options = PATIENT } = {}) {
  const servers = await Servers.start(t, nodes)
  const connect = (urls = servers.urls) => {
    const client = new Client(urls, options)
    t.after(() => client.close())
    return client
  }
  return { servers, connect, clients: Array.from({ length: clients }, () => connect()) }
}

/** Waits until the queue of each of these nodes (default: all) has `count` waiters. */
async function queued(servers, count, nodes = [...servers.all.keys()]) {
  for (const node of nodes) {
    await until(async () => (await servers.command(node, 'ZCARD', '{r}:queue')) === count)
  }
}

/** Returns the number of connections to each node that are subscribed to notifications. */
async function subscriberCounts(servers) {
  const counts = []
  for (const node of servers.all.keys()) {
    const clients = await servers.command(node, 'CLIENT', 'LIST', 'TYPE', 'pubsub')
    counts.push(clients.split(' addr=').length - 1)
  }
  return counts
}

/** Waits until each node has `count` connections that are subscribed to notifications. */
async function subscribed(servers, count) {
  await until(async () => (await subscriberCounts(servers)).every((each) => each === count))
}

/** Returns the promise's value. Fails if it takes longer than a minute. */
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

/** Waits for the lock and releases it. */
async function acquireAndRelease(waiting) {
  const lease = await soon(waiting)
  assert(await lease.release())
}

test('a release notifies the waiter', async (t) => {
  const { servers, clients } = await open(t)
  const [holder, waiter] = clients
  for (let round = 0; round < 10; round++) {
    const lease = await holder.lock('r')
    const waiting = waiter.lock('r')
    await queued(servers, 1)
    assert(await lease.release())
    await acquireAndRelease(waiting)
    await until(() => servers.isEmpty())
  }
})

test('a waiter misses no release, at whatever moment it happens', async (t) => {
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
      await acquireAndRelease(waiting)
    }
  }
  await until(() => servers.isEmpty())
})

test('a release notifies the waiter while a node is frozen', async (t) => {
  const { servers, clients } = await open(t)
  const lease = await clients[0].lock('r')
  const waiting = clients[1].lock('r')
  await queued(servers, 1)
  await servers.ask({ freeze: 0 })
  await lease.release()
  await acquireAndRelease(waiting)
  await servers.ask({ thaw: 0 })
  await until(() => servers.isEmpty())
})

test('a release notifies the waiter while two of five nodes are down', async (t) => {
  const { servers, clients } = await open(t, { nodes: 5 })
  const lease = await clients[0].lock('r')
  const waiting = clients[1].lock('r')
  await queued(servers, 1)
  for (const kill of [0, 1]) await servers.ask({ kill })
  await lease.release()
  await acquireAndRelease(waiting)
})

test('a waiter joins the queue of a restarted node again', async (t) => {
  const { servers, clients } = await open(t, { options: TRYING })
  const lease = await clients[0].lock('r')
  const waiting = clients[1].lock('r')
  await queued(servers, 1)
  await servers.ask({ restart: 0 })
  await subscribed(servers, 1)
  await queued(servers, 1)
  await lease.release()
  await acquireAndRelease(waiting)
})

test('a client has one place in the queue, and serves its waiters in order', async (t) => {
  const { servers, clients } = await open(t)
  const [holder, waiter] = clients
  let lease = await holder.lock('r')
  const order = []
  const waiting = Array.from({ length: 200 }, async (_, position) => {
    const lease = await waiter.lock('r')
    order.push(position)
    return lease
  })
  // This acquire started after the others and has completed, so the others are already waiting.
  await acquireAndRelease(waiter.lock('another'))
  await queued(servers, 1)
  assert.deepEqual(await subscriberCounts(servers), [1, 1, 1])
  assert(await lease.release())
  for (const [position, next] of waiting.entries()) {
    lease = await soon(next)
    assert.equal(order.at(-1), position)
    // The queue contains the next waiter. On a node that refused the current holder, it may also
    // contain the holder until the release.
    assert((await servers.command(position % 3, 'ZCARD', '{r}:queue')) <= 2)
    assert(await lease.release())
  }
  assert.deepEqual(await subscriberCounts(servers), [1, 1, 1])
  await until(() => servers.isEmpty())
  // The client unsubscribes although it is still open.
  await subscribed(servers, 0)
})

test('an aborted waiter leaves the local wait queue and the queues of the nodes', async (t) => {
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
  await acquireAndRelease(third)
  await until(() => servers.isEmpty())
})

test('the wait is measured from the call, also for waiters that are not first', async (t) => {
  const { servers, clients } = await open(t)
  const [holder, waiter] = clients
  const lease = await holder.lock('r')
  const first = waiter.lock('r')
  await queued(servers, 1)
  const began = performance.now()
  const short = [300, 200, 100].map(async (wait) => {
    const error = await soon(waiter.lock('r', { wait })).catch((error) => error)
    assert(error instanceof LockTimeoutError)
    // Timers have a resolution of 1 ms, so the wait may end up to 1 ms early.
    assert(performance.now() - began >= wait - 1)
    assert.deepEqual(error.nodes.map((node) => node.address), servers.urls)
    assert(error.nodes.filter((node) => node.outcome === 'held').length >= 2)
  })
  const last = waiter.lock('r')
  await Promise.all(short)
  assert(await lease.release())
  await acquireAndRelease(first)
  await acquireAndRelease(last)
  await until(() => servers.isEmpty())
})

test('closing a client ends its waiters, and the next client gets the lock', async (t) => {
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
  await subscribed(servers, 1)
  assert(await lease.release())
  await acquireAndRelease(last)
  await until(() => servers.isEmpty())
})

test('a waiter waits for a holder that is not quorlock', async (t) => {
  const { servers, clients } = await open(t, { clients: 1, options: TRYING })
  for (const node of servers.all.keys()) {
    assert.equal(await servers.command(node, 'SET', 'r', 'foreign', 'NX', 'PX', NEVER), 'OK')
  }
  const waiting = clients[0].lock('r')
  await queued(servers, 1)
  for (const node of servers.all.keys()) assert.equal(await servers.command(node, 'DEL', 'r'), 1)
  await acquireAndRelease(waiting)
  await until(() => servers.isEmpty())
})

test('waiters without permission for channels retry', async (t) => {
  const { servers, connect } = await open(t, { clients: 0, options: TRYING })
  const rights = ['on', '>secret', '~*', '+@all', 'resetchannels']
  for (const node of servers.all.keys()) {
    await servers.command(node, 'ACL', 'SETUSER', 'locker', ...rights)
  }
  const urls = servers.urls.map((url) => url.replace('//', '//locker:secret@'))
  const [holder, waiter] = [connect(urls), connect(urls)]
  const lease = await holder.lock('r')
  const waiting = [1, 2, 3].map(() => waiter.lock('r'))
  // Wait until each node has refused the lock at least twice.
  const held = () => waiter.stats().nodes.map((node) => node.outcomes.held ?? 0)
  await until(() => held().every((count) => count > 1))
  assert(await lease.release())
  for (const each of waiting) await acquireAndRelease(each)
  await until(() => servers.isEmpty())
})

test('a waiter that has lost its place in the queues gets the lock', async (t) => {
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
  for (const each of waiting) await acquireAndRelease(each)
  await until(() => servers.isEmpty())
})
