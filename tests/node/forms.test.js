// tryLock, and the properties of clients and leases.

import assert from 'node:assert/strict'
import { tracingChannel } from 'node:diagnostics_channel'
import { test } from 'node:test'
import { Client, ConfigError, Lease } from 'quorlock'
import { open, until } from './servers.js'

test('tryLock resolves to a lease, or to null while others hold the lock', async (t) => {
  const { servers, client } = await open(t)
  const other = new Client(servers.urls, { wait: 60_000 })
  t.after(() => other.close())
  const lease = await client.tryLock('r', { ttl: 5_000 })
  assert(lease instanceof Lease)
  assert.equal(lease.ttl, 5_000)
  // It does not wait, although the default of the client is a minute.
  assert.equal(await other.tryLock('r'), null)
  assert.equal(await other.tryLock(['q', 'r'], {}), null)
  assert(await servers.isFree('q'))
  assert(await lease.release())
  const next = await other.tryLock(['q', 'r'])
  assert.deepEqual(next.resources, ['q', 'r'])
  assert(await next.release())
})

test('tryLock refuses wait, and all that lock refuses', async () => {
  const client = new Client(['memory://forms-options'])
  for (const wait of [0, 1_000, null]) {
    await assert.rejects(client.tryLock('r', { wait }), { code: 'CONFIG', message: /^wait is not an option of tryLock/ })
  }
  await assert.rejects(client.tryLock('r', 5), { code: 'CONFIG', message: /options must be a plain object/ })
  await assert.rejects(client.tryLock('r', { ttk: 5 }), ConfigError)
  await assert.rejects(client.tryLock('', {}), ConfigError)
  assert.equal(client.stats().attempts, 0)
  const lease = await client.tryLock('r', { wait: undefined })
  await client.close()
  await assert.rejects(client.tryLock('r'), { code: 'CLOSED' })
  assert(!lease.valid)
})

test('an abort signal cancels tryLock, and no key is left', async (t) => {
  const { servers, client } = await open(t)
  const reason = new Error('enough')
  await assert.rejects(client.tryLock('r', { signal: AbortSignal.abort(reason) }), reason)
  await client.doctor() // opens the connections
  for (const server of servers.all.keys()) await servers.ask({ freeze: server })
  const abort = new AbortController()
  const trying = client.tryLock('r', { signal: abort.signal })
  abort.abort(reason)
  await assert.rejects(trying, reason)
  for (const server of servers.all.keys()) await servers.ask({ thaw: server })
  await until(() => servers.isEmpty())
})

test('tryLock is traced, and its contention counts as a timeout', async (t) => {
  const client = new Client(['memory://forms-trace'])
  const results = []
  const subscribers = { asyncEnd: ({ result }) => results.push(result) }
  tracingChannel('quorlock:acquire').subscribe(subscribers)
  t.after(() => tracingChannel('quorlock:acquire').unsubscribe(subscribers))
  const lease = await client.tryLock('r')
  assert.equal(await client.tryLock('r'), null)
  assert.deepEqual(results, [lease, null])
  const { attempts, wins, timeouts } = client.stats()
  assert.deepEqual({ attempts, wins, timeouts }, { attempts: 2, wins: 1, timeouts: 1 })
  await client.close()
})

test('a lease has its resource and ttl; a client has its nodes, and whether it is closed', async () => {
  const nodes = ['redis://user:secret@127.0.0.1:1', 'memory://forms-properties']
  assert.deepEqual(new Client(nodes).nodes, ['redis://127.0.0.1:1', 'memory://forms-properties'])
  const client = new Client(['memory://forms-properties'], { ttl: 2_500 })
  const [one, two] = [await client.lock('r'), await client.lock(['b', 'a'], { ttl: 1_000.5 })]
  assert.deepEqual([one.resource, one.ttl], ['r', 2_500])
  assert.deepEqual([two.resource, two.ttl], ['b', 1_000.5])
  await one.extend(5_000)
  assert.equal(one.ttl, 2_500)
  assert.equal(client.closed, false)
  const closing = client.close()
  assert.equal(client.closed, true)
  await closing
  assert.throws(() => {
    client.closed = false
  }, TypeError)
})
