// `heartbeatTimeout`: a lease whose holder hangs is not renewed. `core/tests/test_nodes/heartbeat.rs` has the rule; these
// tests are about the forms that only Node.js has.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { LeaseLostError } from 'quorlock'
import { Nodes } from 'quorlock/testing'

/** In ms. Longer than the ttl, so that the lease is renewed several times before the timeout. */
const TIMEOUT = 3_600_000
const MINUTE = 60_000

function open(t) {
  const nodes = new Nodes(3)
  t.after(() => nodes.close())
  return { nodes, client: nodes.client({ ttl: MINUTE, maxHold: null, heartbeatTimeout: TIMEOUT }) }
}

const silent = (error) => {
  assert(error instanceof LeaseLostError)
  assert.equal(error.reason, 'no_heartbeat')
  assert.match(error.message, /no heartbeat for 1 h/)
  assert.match(JSON.stringify(error), /"reason":"no_heartbeat"/)
  return true
}

test('a holder that hangs is told why it has lost the lock', async (t) => {
  const { nodes, client } = open(t)
  const work = client.using('r', async (lease) => {
    await nodes.advance(TIMEOUT - MINUTE)
    lease.heartbeat()
    await nodes.advance(TIMEOUT - MINUTE)
    assert(lease.valid)
    await nodes.advance(2 * MINUTE)
    assert(lease.signal.aborted)
    assert.throws(() => lease.heartbeat(), silent)
    silent(lease.signal.reason)
  })
  await assert.rejects(work, silent)
  assert.equal(client.stats().noHeartbeat, 1)
  const following = await client.lock('r')
  assert(await following.release())
  assert.throws(() => following.heartbeat(), { name: 'LeaseLostError', reason: 'released' })
})

test('each item of a loop is a heartbeat', async (t) => {
  const { nodes, client } = open(t)
  const lease = await client.lock('r')
  async function* numbers() {
    yield* [3, 4]
  }
  const done = []
  for (const items of [[1, Promise.resolve(2)], numbers()]) {
    for await (const item of lease.heartbeats(items)) {
      done.push(item)
      await nodes.advance(TIMEOUT - MINUTE)
      assert(lease.valid)
    }
  }
  assert.deepEqual(done, [1, 2, 3, 4])
  const late = async () => {
    for await (const item of lease.heartbeats([5, 6])) {
      done.push(item)
      await nodes.advance(TIMEOUT + MINUTE)
    }
  }
  await assert.rejects(late(), silent)
  assert.deepEqual(done, [1, 2, 3, 4, 5], 'no work begins after the loss')
})
