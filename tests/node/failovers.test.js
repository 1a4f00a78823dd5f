// Leases on a Sentinel deployment or a Redis Cluster, while masters fail over and slots move.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Client, ConfigError, LockTimeoutError, QuorumError } from 'quorlock'
import { Servers, until } from './servers.js'

/** Milliseconds: longer than a test takes. */
const NEVER = 600_000

/** Opens a client that is closed at the end of the test. */
function connect(t, url, options = {}) {
  const client = new Client([url], { ttl: NEVER, wait: NEVER, ...options })
  t.after(() => client.close())
  return client
}

/** Extends the lease; returns false if there is no quorum. */
async function tryExtend(lease) {
  try {
    await lease.extend()
    return true
  } catch (error) {
    assert(error instanceof QuorumError, error)
    return false
  }
}

for (const how of ['kill', 'freeze']) {
  test(`a lease survives a failover by Sentinel (${how})`, async (t) => {
    const servers = await Servers.startWith(t, { start_sentinel: true })
    const client = connect(t, `redis-sentinel://${servers.all[0].seeds}/orders`)
    const lease = await client.lock('r')
    await until(async () => (await servers.command(1, 'EXISTS', 'r', '{r}:fence')) === 2)
    await servers.ask({ [how]: 0 })
    assert.equal(await servers.ask({ fail_over: true }), 1)
    await until(() => tryExtend(lease))
    assert.equal(await servers.command(1, 'GET', 'r'), lease.token)
    assert(await lease.release())
    const following = await client.lock('r')
    assert(following.fence > lease.fence)
    assert(await following.release())
  })
}

test('a lease survives a cluster failover and the migration of its slot', async (t) => {
  const servers = await Servers.startWith(t, { start_cluster: true, replicas: 1 })
  const client = connect(t, `redis-cluster://${servers.all[0].seeds}`)
  const other = connect(t, `redis-cluster://${servers.all[2].seed}`)

  const lease = await client.lock('k')
  await servers.ask({ begin_move: ['k', 2] })
  await lease.extend()
  await servers.ask({ end_move: ['k', 2] })
  await lease.extend()
  await assert.rejects(other.lock('k', { wait: 0 }), LockTimeoutError)
  assert(await lease.release())
  await assert.rejects(async () => client.lock(['bar', 'foo']), ConfigError)

  const held = await client.lock('bar')
  await until(async () => (await servers.command(3, 'KEYS', '*')).includes('bar'))
  await servers.ask({ kill: 0 })
  assert.equal(await servers.ask({ fail_over: 0 }), 3)
  await until(() => tryExtend(held))
  assert.equal(await servers.command(3, 'GET', 'bar'), held.token)
  assert(await held.release())
})
