// Releases that keep the key on the nodes: which ends of a lease do, and what others see.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { open, until } from './servers.js'

const KEEP = 600_000

const held = { code: 'TIMEOUT', holder: 'cron-1' }

test('all ends of a block keep the key, for as long as the lock says', async (t) => {
  const { servers, client } = await open(t, 3, { holder: 'cron-1' })
  await client.using('using', { keep: KEEP }, () => {})
  await assert.rejects(
    client.using('failed', { keep: KEEP }, () => Promise.reject(new RangeError('no'))),
    RangeError,
  )
  const disposed = await client.lock('disposed', { keep: KEEP })
  await disposed[Symbol.asyncDispose]()
  const lease = await client.lock('released', { keep: KEEP })
  assert(await lease.release())
  assert(!lease.valid)
  assert(!lease.signal.aborted)
  for (const name of ['using', 'failed', 'disposed', 'released']) {
    await assert.rejects(client.lock(name, { wait: 0 }), held)
    assert.equal(await client.tryLock(name), null)
    assert(await client.locked(name))
    const { state, holder, remaining } = await client.status(name)
    assert.deepEqual([state, holder], ['held', 'cron-1'])
    assert(remaining > KEEP - 60_000 && remaining <= KEEP * 1.01 + 3, `${remaining}`)
    assert((await servers.command(0, 'PTTL', name)) <= KEEP * 1.01 + 3)
  }
})

test('null keeps nothing, and a wrong argument releases nothing', async (t) => {
  const { servers, client } = await open(t, 3, { keep: KEEP, holder: 'cron-1' })
  assert(await (await client.lock('r')).release({ keep: null }))
  await until(() => servers.isFree('r'))
  const lease = await client.lock('r', { wait: 0 })
  await assert.rejects(lease.release(60_000), { code: 'CONFIG', message: /^options must be a plain object/ })
  assert(lease.valid)
  assert(await lease.release({ keep: undefined }))
  await assert.rejects(client.lock('r', { wait: 0 }), held)
})

test('an aborted acquire keeps nothing', async (t) => {
  const { servers, client } = await open(t, 3, { keep: KEEP })
  for (let round = 0; round < 50; round++) {
    const controller = new AbortController()
    const acquiring = client.lock('aborted', { signal: controller.signal })
    setImmediate(() => controller.abort())
    const lease = await acquiring.catch(() => {})
    await lease?.release({ keep: 0 })
  }
  await until(() => servers.isFree('aborted'))
})
