// Several resources in one lease. The shared scenarios lock them on real servers.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Client } from 'quorlock'

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
