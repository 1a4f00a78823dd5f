// Locks in shared mode: readers and writers.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ConfigError } from 'quorlock'
import { open, until } from './servers.js'

const shared = { mode: 'shared' }

test('the modes of resources with any names count', async (t) => {
  const { client } = await open(t, 3, { wait: 0 })
  const names = ['a\0b', '__proto__', 'constructor', '7', 'é']
  const mode = Object.fromEntries(names.map((name) => [name, 'shared']))
  const lease = await client.lock([...names, 'r'], { mode })
  assert.deepEqual(Object.entries(lease.modes), [['7', 'shared'], ...names.filter((name) => name !== '7').map((name) => [name, 'shared']), ['r', 'exclusive']])
  assert(await lease.release())
  await assert.rejects(client.lock('a', { mode: { 'a\ud800': 'shared' } }), { name: 'ConfigError', message: /property names contain lone surrogates/ })
  // An inherited property is no option of the caller.
  const inherited = Object.create({ ttl: 1 })
  await assert.rejects(client.lock('r', inherited), ConfigError)
})

/** The error of an acquire that would wait for the block that it is in. */
const ownBlock = (resource) => (error) =>
  error instanceof ConfigError && error.resources.includes(resource) && /in a block that holds "r" in shared mode.*tryUpgrade/.test(error.message)

test('an acquire in a block rejects if it would wait for the shared lease of the block', async (t) => {
  const { client } = await open(t, 3, { wait: null })
  await client.using('r', shared, async (lease) => {
    await assert.rejects(client.lock('r'), ownBlock('r'))
    await assert.rejects(client.using('r', () => {}), ownBlock('r'))
    await assert.rejects(client.using(['q', 'r'], { mode: { q: 'shared' } }, () => {}), ownBlock('r'))
    await assert.rejects(Promise.all([client.lock('r')]), ownBlock('r'))
    await client.using('s', shared, () => assert.rejects(client.lock('r'), ownBlock('r')))
    // The innermost block does not stand in the way, the outer one does.
    await client.using('s', shared, () => assert.rejects(client.lock(['s', 'r'], { mode: { s: 'shared' } }), ownBlock('r')))
    await client.using('r', shared, () => {})
    await assert.rejects(client.lock('r'), ownBlock('r'))
    assert.equal(await client.tryLock('r'), null)
    assert(lease.valid)
  })
  await client.using(['q', 'r'], { mode: { r: 'shared' } }, () => assert.rejects(client.lock('r'), ConfigError))
  assert(await (await client.lock('r')).release())
})

test('a candidacy in a block rejects if it would wait for the shared lease of the block', async (t) => {
  const { client } = await open(t, 3)
  const lead = () => 'led'
  await client.using('r', shared, async (lease) => {
    await assert.rejects(client.elect('r', lead), ownBlock('r'))
    assert.equal(await client.elect('other', lead), 'led')
    assert(lease.valid)
  })
  assert.equal(await client.elect('r', lead), 'led')
})

test('an acquire in a block waits for the leases of others', async (t) => {
  const { client } = await open(t, 3, { wait: 60_000 })
  const isWaiting = () => client.status('r').then(({ waiters }) => waiters === 1)
  let waiting, late
  await client.using('s', shared, async () => {
    const inner = client.using('r', shared, async (lease) => {
      await until(isWaiting)
      assert(lease.valid)
    })
    // This one is in the block of `s` only.
    waiting = client.lock('r')
    await inner
    await (await waiting).release()
    const reader = await client.lock('r', shared)
    waiting = client.lock('r')
    await until(isWaiting)
    await reader.release()
    await (await waiting).release()
  })
  await client.using('r', shared, async (lease) => {
    late = () => client.lock('r')
    await lease.release()
    await (await late()).release()
  })
  // What a block has started is not in it any more after its end.
  let ended
  const started = client.using('r', shared, () => {
    const after = new Promise((resolve) => (ended = resolve)).then(() => client.lock('r'))
    return { after }
  })
  const { after } = await started
  const reader = await client.lock('r', shared)
  ended()
  await until(isWaiting)
  await reader.release()
  await (await after).release()
})

test('a signal that aborts while a reader or a writer waits leaves nothing', async (t) => {
  const { servers, client } = await open(t, 3, { ttl: 60_000, wait: null })
  const count = (key, expected) =>
    until(async () => {
      const found = await Promise.all(servers.urls.map((_, server) => servers.command(server, 'ZCARD', key)))
      return found.every((members) => members === expected)
    })
  for (const mode of ['shared', 'exclusive']) {
    const lease = await client.lock('r', { mode: mode === 'shared' ? 'exclusive' : 'shared' })
    const controller = new AbortController()
    const waiting = client.lock('r', { mode, signal: controller.signal })
    await count('{r}:queue', 1)
    controller.abort()
    await assert.rejects(waiting, { name: 'AbortError' })
    await count('{r}:queue', 0)
    await count('{r}:shared', mode === 'shared' ? 0 : 1)
    // Nobody waits for the one that is gone.
    if (lease.mode === 'shared') await (await client.lock('r', { ...shared, wait: 0 })).release()
    assert(await lease.release())
    await until(() => servers.isEmpty())
  }
  await assert.rejects(client.lock('r', { ...shared, signal: AbortSignal.abort() }), { name: 'AbortError' })
  assert(await servers.isEmpty())
})

test('an invalid mode rejects with a ConfigError', async (t) => {
  const { client } = await open(t, 3)
  const mistakes = [
    ['read', /^mode must be "exclusive" or "shared", or an object with one of these for each resource, not "read"$/],
    [['shared'], /not \[a string\]/],
    [{ r: 'write' }, /^mode of "r" must be "exclusive" or "shared", not "write"$/],
  ]
  for (const [mode, message] of mistakes) {
    await assert.rejects(client.lock('r', { mode }), (error) => error instanceof ConfigError && message.test(error.message))
  }
  await assert.rejects(
    client.elect('r', shared, () => {}),
    /there is one leader/,
  )
  const text = await (await client.lock('r')).detach()
  await assert.rejects(client.adopt(text, shared), /the lease keeps its mode/)
  await (await client.adopt(text)).release()
})
