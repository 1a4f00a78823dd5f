// Several resources in one lease, on real servers.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Client, ConfigError, LeaseLostError, LockTimeoutError } from 'quorlock'
import { open, steal, until } from './servers.js'

/** Returns how many nodes have the key. */
async function count(servers, key) {
  let found = 0
  for (const index of servers.all.keys()) found += await servers.command(index, 'EXISTS', key)
  return found
}

test('a lease of several resources has a fence for each', async () => {
  const client = new Client(['memory://several'])
  const lease = await client.lock(['b', 'a'])
  assert.deepEqual(lease.resources, ['b', 'a'])
  const { fences } = lease
  assert.deepEqual(Object.keys(fences), ['b', 'a'])
  assert.throws(() => lease.fence, (error) => {
    assert(error instanceof ConfigError)
    assert.match(error.message, /`fences`/)
    assert.deepEqual(error.resources, ['b', 'a'])
    return true
  })
  assert(await lease.release())
  const one = await client.lock('a')
  assert.deepEqual({ ...one.fences }, { a: one.fence })
  assert(one.fence > fences.a)
  assert(await one.release())
})

test('fences are a frozen object in which a resource may have any name', async () => {
  const client = new Client(['memory://several-names'])
  const names = ['__proto__', 'constructor', 'toString', '7']
  const { fences } = await client.lock(names)
  assert.equal(Object.getPrototypeOf(fences), null)
  assert.deepEqual(Object.keys(fences).sort(), names.toSorted())
  for (const name of names) assert(Number.isSafeInteger(fences[name]) && fences[name] > 0)
  assert(!('valueOf' in fences))
  assert(Object.isFrozen(fences))
  assert.deepEqual(Object.keys(JSON.parse(JSON.stringify(fences))).sort(), names.toSorted())
})

test('an array of one resource is that resource', async () => {
  const client = new Client(['memory://several-one'])
  const lease = await client.lock(['r'])
  assert.deepEqual(lease.resources, ['r'])
  assert.equal(lease.fences.r, lease.fence)
  assert(await client.locked('r'))
  assert(await lease.release())
  assert.equal(await client.using(['r'], () => 'done'), 'done')
})

test('each resource must be a well-formed string', async () => {
  const client = new Client(['memory://several-wrong'])
  for (const resource of ['', 7, null, undefined, {}, ['b'], '\ud800']) {
    const expected = { code: 'CONFIG', message: /^resource [12] must be a string/ }
    await assert.rejects(client.lock(['a', resource]), expected)
    await assert.rejects(client.locked(['a', resource]), expected)
    await assert.rejects(client.using([resource, 'a'], () => assert.fail('it ran')), expected)
  }
  await assert.rejects(client.lock(new Array(3)), { code: 'CONFIG' })
  // Changing the array after the call has no effect.
  const names = ['a', 'b']
  const locking = client.lock(names)
  names.push('c')
  assert.deepEqual((await locking).resources, ['a', 'b'])
})

test('several resources are locked all or none', async (t) => {
  const { servers, client } = await open(t)
  const held = await client.lock('b')
  await until(async () => (await count(servers, 'b')) === 3)
  for (const wait of [0, 300]) {
    const error = await client.lock(['a', 'b', 'c'], { wait }).catch((error) => error)
    assert(error instanceof LockTimeoutError)
    assert.deepEqual(error.resources, ['a', 'b', 'c'])
    assert.equal(error.resource, 'a')
    for (const key of ['a', 'c', '{a}:queue', '{b}:queue', '{c}:queue']) {
      await until(() => servers.isFree(key))
    }
  }
  assert.equal(await client.using(['a', 'c'], { wait: 0 }, () => 'free'), 'free')
  assert(await held.release())
  await until(() => servers.isEmpty())
})

test('a lease of several resources excludes leases of each', async (t) => {
  const { servers, client } = await open(t)
  await client.using(['a', 'b'], async (lease) => {
    for (const resources of ['a', ['b'], ['b', 'c'], ['b', 'a']]) {
      await assert.rejects(client.lock(resources, { wait: 0 }), LockTimeoutError)
      assert(await client.locked(resources))
    }
    assert.equal(await client.using('c', { wait: 0 }, () => 'free'), 'free')
    assert(lease.valid)
  })
  await until(() => servers.isEmpty())
})

test('a waiter for two resources gets them when both are free', async (t) => {
  const { client } = await open(t, 3, { wait: 60_000 })
  const [first, second] = [await client.lock('a'), await client.lock('b')]
  const waiting = client.lock(['b', 'a'])
  assert(await first.release())
  assert(await second.release())
  const { valid, fences } = await waiting
  assert(valid)
  assert(fences.a > first.fence && fences.b > second.fence)
})

test('overlapping resources in different orders do not deadlock', async (t) => {
  const { client } = await open(t, 3, { wait: 60_000 })
  const inside = { a: 0, b: 0, c: 0 }
  const last = { a: 0, b: 0, c: 0 }
  const work = async (lease) => {
    for (const [name, fence] of Object.entries(lease.fences)) {
      assert.equal(++inside[name], 1)
      assert(fence > last[name])
      last[name] = fence
    }
    await new Promise(setImmediate)
    lease.check()
    for (const name of lease.resources) inside[name]--
  }
  const orders = [['a', 'b'], ['b', 'a'], ['b', 'c'], ['c', 'b', 'a']]
  const turns = orders.map(async (resources) => {
    for (let turn = 0; turn < 25; turn++) await client.using(resources, work)
  })
  await Promise.all(turns)
})

test('losing one resource aborts the signal and releases the others', async (t) => {
  const { servers, client } = await open(t, 3, { ttl: 2_000 })
  const lease = await client.lock(['a', 'b'])
  const { signal } = lease
  await steal(servers, 'b')
  await until(() => signal.aborted)
  assert(signal.reason instanceof LeaseLostError)
  assert.deepEqual(signal.reason.resources, ['a', 'b'])
  assert.equal(await lease.release(), false)
  await until(() => servers.isFree('a'))
  assert.equal(await servers.command(0, 'GET', 'b'), 'thief')
})

test('using reports the loss of one of several resources', async (t) => {
  const { servers, client } = await open(t)
  const work = async () => {
    await until(async () => (await count(servers, 'b')) === 3)
    for (const index of [0, 1]) await servers.command(index, 'DEL', 'b')
  }
  await assert.rejects(client.using(['a', 'b'], work), LeaseLostError)
  await until(() => servers.isEmpty())
})

test('an aborted acquire of several resources leaves no key', async (t) => {
  const { servers, client } = await open(t)
  const lease = await client.lock('b')
  const controller = new AbortController()
  const waiting = client.lock(['a', 'b'], { wait: null, signal: controller.signal })
  await until(async () => (await count(servers, '{b}:queue')) === 3)
  controller.abort(new Error('enough'))
  await assert.rejects(waiting, /enough/)
  assert(await lease.release())
  await until(() => servers.isEmpty())
})
