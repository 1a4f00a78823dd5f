// Leases that are detached and adopted.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ConfigError, LeaseLostError } from 'quorlock'
import { open, until } from './servers.js'

test('`within` has a default, and an adopted lease has a ttl of its own and is released by a block', async (t) => {
  const { servers, client } = await open(t, 3)
  const lease = await client.lock('r')
  const { signal } = lease
  const adopted = await client.adopt(await lease.detach(), { ttl: 5_000 })
  assert.equal(adopted.ttl, 5_000)
  await adopted[Symbol.asyncDispose]()
  await until(() => servers.isFree('r'))
  assert(!signal.aborted)
  const { detached, losses, held } = client.stats()
  assert.deepEqual([detached, losses, held], [1, 0, 0])
})

test('an aborted adoption leaves the lease to others', async (t) => {
  const { client } = await open(t, 3)
  const text = await (await client.lock('r')).detach()
  const controller = new AbortController()
  const adopting = client.adopt(text, { signal: controller.signal })
  controller.abort(new Error('enough'))
  await assert.rejects(adopting, /enough/)
  await assert.rejects(client.adopt(text, { signal: controller.signal }), /enough/)
  const outcome = await client.adopt(text).catch((error) => error)
  // It may have been adopted at that moment, and was released then.
  if (outcome instanceof LeaseLostError) return
  assert(await outcome.release())
})

test('mistakes reject with a ConfigError', async (t) => {
  const { client } = await open(t, 3)
  const lease = await client.lock('r')
  for (const options of [{ within: 1 }, { within: '30' }, { ttl: 30_000 }, 30_000]) {
    await assert.rejects(lease.detach(options), ConfigError)
  }
  assert(lease.valid)
  const text = await lease.detach()
  for (const wrong of [undefined, null, 7]) {
    await assert.rejects(client.adopt(wrong), (error) => error instanceof ConfigError && /lease text/.test(error.message))
  }
  await assert.rejects(client.adopt(text, { retryDelay: [1, 2] }), /retryDelay is an option of the client/)
  await client.close()
  await assert.rejects(client.adopt(text), { code: 'CLOSED' })
})
