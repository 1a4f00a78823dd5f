// The names of holders, the status of a resource, and forced releases.

import assert from 'node:assert/strict'
import { hostname } from 'node:os'
import { test } from 'node:test'
import { inspect } from 'node:util'
import { Client, ClosedError, ConfigError, LockTimeoutError } from 'quorlock'
import { open, until } from './servers.js'

// The clocks of the nodes are those of this machine, but the system may correct them meanwhile. In ms.
const CORRECTION = 1000

test('the default name is the host and the process', async (t) => {
  const { client } = await open(t)
  for (const options of [undefined, { holder: null }, { holder: undefined }]) {
    const lease = await client.lock('r', options)
    assert.equal(lease.holder, `${hostname()}:${process.pid}`)
    assert.equal(lease.token.slice(40), `;${lease.holder}`)
    await lease.release()
  }
})

test('a timeout names the holder', async (t) => {
  const { client, servers } = await open(t)
  const lease = await client.lock('r', { holder: 'web-7' })
  const other = new Client(servers.urls, { wait: 0 })
  await assert.rejects(other.lock('r'), (error) => {
    assert(error instanceof LockTimeoutError)
    assert.equal(error.holder, 'web-7')
    assert.match(error.message, /^"r" is held by web-7 for up to /)
    assert(!inspect(error, { showHidden: true }).includes(lease.token.slice(0, 9)))
    return true
  })
  await lease.release()
  const nameless = await client.lock('r', { holder: '' })
  await assert.rejects(other.lock('r'), (error) => error.holder === undefined && !('holder' in error))
  await nameless.release()
  await assert.rejects(client.lock('r', { holder: '\ud800' }), ConfigError)
  await other.close()
})

test('status reports the holder and the waiters', async (t) => {
  const { client } = await open(t)
  const free = await client.status('r')
  assert.deepEqual([free.state, free.holder, free.since, free.remaining, free.waiters], ['free', null, null, null, 0])
  const before = Date.now()
  const lease = await client.lock('r', { holder: 'web-7', ttl: 10_000 })
  const after = Date.now()
  const waiter = client.lock('r', { wait: null })
  await until(async () => (await client.status('r')).waiters === 1)
  const held = await client.status('r')
  assert.deepEqual([held.resource, held.state, held.holder], ['r', 'held', 'web-7'])
  assert.deepEqual([held.token, held.fence], [lease.token.slice(0, 8), lease.fence])
  assert(before - CORRECTION <= held.since && held.since <= after + CORRECTION, `${before} ${held.since.getTime()} ${after}`)
  assert(held.remaining > 0 && held.remaining <= 10_000)
  for (const node of held.nodes) {
    assert(node.remaining > 0 && node.remaining <= 10_000)
    assert.deepEqual(Object.keys(node).sort(), ['address', 'detail', 'fence', 'holder', 'outcome', 'readers', 'remaining', 'token', 'waiters'])
    assert.deepEqual([node.outcome, node.holder, node.token], ['held', 'web-7', lease.token.slice(0, 8)])
  }
  await lease.release()
  await (await waiter).release()
})

test('an invalid resource and a closed client are errors', async (t) => {
  const { client } = await open(t)
  for (const method of ['status', 'forceRelease']) {
    for (const resource of ['', 42, undefined, ['a'], '\ud800']) {
      await assert.rejects(client[method](resource), ConfigError)
    }
  }
  await client.close()
  for (const method of ['status', 'forceRelease']) await assert.rejects(client[method]('r'), ClosedError)
})
