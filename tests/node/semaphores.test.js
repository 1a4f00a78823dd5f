// Semaphores: at most so many permits of a resource are held at the same time.

import assert from 'node:assert/strict'
import { tracingChannel } from 'node:diagnostics_channel'
import { test } from 'node:test'
import { inspect } from 'node:util'
import { Client, ConfigError, LockTimeoutError, QuorumError, Semaphore } from 'quorlock'
import { open, until } from './servers.js'

const waiters = async (semaphore, count) => until(async () => (await semaphore.status()).waiters === count)

test('a semaphore and its leases show their permits', async (t) => {
  const { client } = await open(t, 3, { wait: 0 })
  const semaphore = client.semaphore('api', { limit: 4, permits: 3 })
  assert(semaphore instanceof Semaphore)
  assert.deepEqual([semaphore.resource, semaphore.limit, semaphore.permits], ['api', 4, 3])
  assert.equal(inspect(semaphore), "Semaphore { resource: 'api', limit: 4 }")
  assert.throws(() => structuredClone(semaphore), { name: 'DataCloneError' })
  const [many, one] = [await semaphore.acquire(), await semaphore.acquire({ permits: 1 })]
  assert.deepEqual([...many.slots, ...one.slots].sort(), [0, 1, 2, 3])
  assert.throws(() => many.slot, (error) => error instanceof ConfigError && /has 3 slots: use `slots`/.test(error.message))
  assert.deepEqual([one.slots, one.resources], [[one.slot], ['api']])
  assert.equal(await semaphore.tryAcquire(), null)
  await assert.rejects(semaphore.acquire(), (error) => error instanceof LockTimeoutError && /its limit is 4/.test(error.message))
  await Promise.all([many.release(), one.release()])
})

test('a lock has no slot, and is independent', async (t) => {
  const { client } = await open(t, 3, { wait: 0 })
  await client.semaphore('r', { limit: 1 }).using(() =>
    client.using('r', (lease) => {
      assert.deepEqual(lease.slots, [])
      assert.throws(() => lease.slot, ConfigError)
    }),
  )
})

test('a waiter gets the next permit, unless it is cancelled', async (t) => {
  const { servers, client } = await open(t, 3, { wait: 60_000 })
  const semaphore = client.semaphore('api', { limit: 1 })
  const first = await semaphore.acquire()
  const controller = new AbortController()
  const cancelled = semaphore.acquire({ signal: controller.signal })
  await waiters(semaphore, 1)
  controller.abort()
  await assert.rejects(cancelled, { name: 'AbortError' })
  await assert.rejects(semaphore.tryAcquire({ signal: controller.signal }), { name: 'AbortError' })
  const next = semaphore.acquire({ wait: null })
  await waiters(semaphore, 1)
  assert(await first.release())
  assert(await (await next).release())
  await until(() => servers.isEmpty())
})

test('using releases the permits, and passes on results and errors', async (t) => {
  const { client } = await open(t, 3, { wait: 0 })
  const semaphore = client.semaphore('api', { limit: 2 })
  assert.equal(await semaphore.using((lease) => lease.slots.length), 1)
  assert.equal(await semaphore.using({ permits: 2 }, (lease) => lease.slots.length), 2)
  await assert.rejects(
    semaphore.using(() => {
      throw new Error('of the work')
    }),
    /of the work/,
  )
  await assert.rejects(semaphore.using({}), ConfigError)
  assert.equal((await semaphore.status()).free, 2)
})

test('status', async (t) => {
  const { servers, client } = await open(t, 3, { wait: 0, ttl: 600_000 })
  const semaphore = client.semaphore('api', { limit: 4, holder: 'web-1' })
  const { nodes, ...empty } = await semaphore.status()
  assert.deepEqual(empty, { resource: 'api', limit: 4, free: 4, waiters: 0, holders: [] })
  assert.deepEqual(nodes[0], { address: client.nodes[0], outcome: 'confirmed', detail: '', held: 0 })
  const lease = await semaphore.acquire({ permits: 2 })
  await until(async () => (await semaphore.status()).nodes.every(({ held }) => held === 2))
  const { free, holders } = await semaphore.status()
  assert.equal(free, 2)
  assert.deepEqual(holders.map(({ slot }) => slot), lease.slots)
  for (const { remaining, ...holder } of holders) {
    const { slot } = holder
    assert.deepEqual(holder, { slot, holder: 'web-1', token: lease.token.slice(0, 8), fence: lease.fence })
    assert(remaining > 0 && remaining <= 600_000)
  }
  await servers.ask({ kill: 2 })
  assert.equal((await semaphore.status()).nodes[2].held, null)
  await servers.ask({ kill: 1 })
  await assert.rejects(semaphore.status(), QuorumError)
})

test('acquires are traced', async (t) => {
  const client = new Client(['memory://traced'], { wait: 0 })
  t.after(() => client.close())
  const seen = []
  const start = ({ client: by, resources }) => seen.push([by, resources])
  tracingChannel('quorlock:acquire').start.subscribe(start)
  await client.semaphore('api', { limit: 1 }).using(() => {})
  tracingChannel('quorlock:acquire').start.unsubscribe(start)
  assert.deepEqual(seen, [[client, ['api']]])
})
