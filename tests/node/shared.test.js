// Locks in shared mode: readers and writers.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ConfigError, LeaseLostError, LockTimeoutError } from 'quorlock'
import { open, until } from './servers.js'

const shared = { mode: 'shared' }

/** Whether no node has a lock key. */
async function isFree(servers, key) {
  const found = await Promise.all(servers.urls.map((_, server) => servers.command(server, 'EXISTS', key)))
  return found.every((count) => count === 0)
}

test('readers share, and keep writers out', async (t) => {
  const { servers, client } = await open(t, 3, { wait: 0 })
  const [one, other] = await Promise.all([client.lock('config', shared), client.lock('config', shared)])
  assert.deepEqual([one.mode, { ...one.modes }], ['shared', { config: 'shared' }])
  assert(one.valid && other.valid)
  await assert.rejects(client.lock('config'), LockTimeoutError)
  assert.deepEqual([await client.locked('config'), await client.locked('config', shared)], [true, false])
  await Promise.all([one.release(), other.release()])
  const writer = await client.lock('config')
  assert.equal(writer.mode, 'exclusive')
  assert(writer.fence > Math.max(one.fence, other.fence))
  assert.equal(await client.tryLock('config', shared), null)
  await writer.release()
  await until(() => isFree(servers, 'config'))
})

test('each of several resources has its mode', async (t) => {
  const { client } = await open(t, 3, { wait: 0 })
  const lease = await client.lock(['account', 'rates'], { mode: { rates: 'shared' } })
  assert.deepEqual([lease.mode, { ...lease.modes }], [null, { account: 'exclusive', rates: 'shared' }])
  await (await client.lock('rates', shared)).release()
  assert.equal(await client.tryLock('account', shared), null)
  assert.equal(await client.tryLock('rates'), null)
  await lease.release()
})

test('a downgraded lease is shared, with the same fence', async (t) => {
  const { client } = await open(t, 3, { wait: 0 })
  const lease = await client.lock('r')
  const { fence } = lease
  await lease.downgrade()
  assert.deepEqual([lease.mode, lease.fence, lease.valid], ['shared', fence, true])
  await (await client.lock('r', shared)).release()
  assert.equal(await client.tryLock('r'), null)
  await lease.release()
  await assert.rejects(lease.downgrade(), LeaseLostError)
})

test('the only reader is upgraded', async (t) => {
  const { servers, client } = await open(t, 3, { wait: 0 })
  const lease = await client.lock('r', shared)
  const { signal } = lease
  const other = await client.lock('r', shared)
  assert.equal(await lease.tryUpgrade(), null)
  assert.deepEqual([lease.valid, lease.mode], [true, 'shared'])
  await other.release()
  const upgraded = await lease.tryUpgrade()
  assert(!lease.valid && !signal.aborted)
  assert.throws(() => lease.check(), /was upgraded: use the new lease/)
  assert.deepEqual([upgraded.mode, upgraded.resources], ['exclusive', ['r']])
  assert(upgraded.fence > lease.fence)
  assert.equal(await client.tryLock('r', shared), null)
  await assert.rejects(upgraded.tryUpgrade(), /it is exclusive already/)
  assert(await upgraded.release())
  await until(() => isFree(servers, 'r'))
  assert(!signal.aborted)
  assert.equal(client.stats().losses, 0)
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
    await client.using('r', shared, () => {})
    await assert.rejects(client.lock('r'), ownBlock('r'))
    assert.equal(await client.tryLock('r'), null)
    assert(lease.valid)
  })
  await client.using(['q', 'r'], { mode: { r: 'shared' } }, () => assert.rejects(client.lock('r'), ConfigError))
  assert(await (await client.lock('r')).release())
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

test('the status lists the readers', async (t) => {
  const { client } = await open(t, 3)
  const leases = await Promise.all(['web-1', 'web-2'].map((holder) => client.lock('r', { ...shared, holder })))
  const { state, holder, readers, nodes } = await client.status('r')
  assert.deepEqual([state, holder, readers.map((reader) => reader.holder).sort()], ['held', null, ['web-1', 'web-2']])
  assert(readers.every(({ remaining, token }) => remaining > 0 && token.length === 8))
  assert(nodes.every((node) => node.readers.length === 2))
  await Promise.all(leases.map((lease) => lease.release()))
})

test('an invalid mode rejects with a ConfigError', async (t) => {
  const { client } = await open(t, 3)
  const mistakes = [
    ['read', /^mode must be "exclusive" or "shared", or an object with one of these for each resource, not "read"$/],
    [null, /not null/],
    [['shared'], /not \[a string\]/],
    [{ r: 'write' }, /^mode of "r" must be "exclusive" or "shared", not "write"$/],
    [{ x: 'shared' }, /the mode of "x" is given, which is not a resource of this lock/],
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
