// Semaphores: at most so many permits of a resource are held at the same time.

import assert from 'node:assert/strict'
import { tracingChannel } from 'node:diagnostics_channel'
import { test } from 'node:test'
import { inspect } from 'node:util'
import { Client, ConfigError, LockTimeoutError, QuorumError, Semaphore } from 'quorlock'
import { open, until } from './servers.js'

const waiters = async (semaphore, count) => until(async () => (await semaphore.status()).waiters === count)

test('as many permits are held as the limit allows', async (t) => {
  const { servers, client } = await open(t, 3, { wait: 0 })
  const semaphore = client.semaphore('api', { limit: 3 })
  assert(semaphore instanceof Semaphore)
  assert.deepEqual([semaphore.resource, semaphore.limit, semaphore.permits], ['api', 3, 1])
  assert.equal(inspect(semaphore), "Semaphore { resource: 'api', limit: 3 }")
  const leases = [await semaphore.acquire(), await semaphore.acquire(), await semaphore.tryAcquire()]
  assert.deepEqual(leases.map((lease) => lease.slot).sort(), [0, 1, 2])
  const [lease] = leases
  assert.deepEqual([lease.slots, lease.resources], [[lease.slot], ['api']])
  assert.equal(await semaphore.tryAcquire(), null)
  await assert.rejects(semaphore.acquire(), (error) => error instanceof LockTimeoutError && /its limit is 3/.test(error.message))
  const { fence, slot } = lease
  assert(await lease.release())
  const again = await semaphore.tryAcquire()
  assert.equal(again.slot, slot)
  assert(again.fence > fence)
  await again.extend(700_000)
  for (const each of [again, ...leases.slice(1)]) assert(await each.release())
  await until(() => servers.isEmpty())
})

test('permits are granted all or none', async (t) => {
  const { client } = await open(t, 3, { wait: 0 })
  const semaphore = client.semaphore('api', { limit: 5, permits: 3 })
  assert.equal(semaphore.permits, 3)
  const many = await semaphore.acquire()
  assert.equal(many.slots.length, 3)
  assert.throws(() => many.slot, (error) => error instanceof ConfigError && /has 3 slots: use `slots`/.test(error.message))
  assert.equal(await semaphore.tryAcquire(), null)
  const rest = await semaphore.acquire({ permits: 2 })
  assert.deepEqual([...many.slots, ...rest.slots].sort(), [0, 1, 2, 3, 4])
  await Promise.all([many.release(), rest.release()])
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

test('the limit holds among clients', async (t) => {
  const { servers, client } = await open(t, 3, { wait: 60_000 })
  const other = new Client(servers.urls, { wait: 60_000 })
  t.after(() => other.close())
  const held = new Set()
  const work = async (from) => {
    for (let turn = 0; turn < 10; turn++) {
      await from.semaphore('api', { limit: 3 }).using(async ({ slot }) => {
        assert(!held.has(slot))
        held.add(slot)
        assert(held.size <= 3)
        await new Promise((resolve) => setTimeout(resolve, 1))
        held.delete(slot)
      })
    }
  }
  await Promise.all(Array.from({ length: 8 }, (_, number) => work(number % 2 ? client : other)))
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

test('a detached permit is adopted', async (t) => {
  const { client } = await open(t, 3, { wait: 0 })
  const lease = await client.semaphore('api', { limit: 3 }).acquire({ permits: 2 })
  const { slots, fence } = lease
  const adopted = await client.adopt(await lease.detach())
  assert.deepEqual(adopted.slots, slots)
  assert(adopted.fence > fence)
  await adopted.release()
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

test('memory nodes', async (t) => {
  const client = new Client(['memory://semaphores'], { wait: 0 })
  t.after(() => client.close())
  const semaphore = client.semaphore('api', { limit: 1 })
  await semaphore.using(async () => assert.equal(await semaphore.tryAcquire(), null))
  assert.throws(() => structuredClone(semaphore), { name: 'DataCloneError' })
})
