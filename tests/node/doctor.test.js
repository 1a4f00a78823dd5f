// A client's reports about its nodes: the doctor, statistics, and guarded and duplicate nodes.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Client, ClosedError, ConfigError, Diagnosis, QuorumError } from 'quorlock'
import { Servers, open, until } from './servers.js'

test('the doctor reports problems as an object, as text and as JSON', async (t) => {
  const { servers, client } = await open(t)
  await servers.command(0, 'CONFIG', 'SET', 'maxmemory', '1gb')
  await servers.command(0, 'CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru')
  await servers.ask({ kill: 2 })
  const diagnosis = await client.doctor()
  assert(diagnosis instanceof Diagnosis)
  assert.equal(diagnosis.level, 'error')
  const [first, second, third] = diagnosis.nodes
  assert.equal(first.address, servers.urls[0])
  assert.equal(first.maxmemoryPolicy, 'allkeys-lru')
  assert.equal(first.appendonly, false)
  assert.equal(first.permissions['SCRIPT LOAD'], 'allowed')
  assert(first.latencyMs > 0 && Math.abs(first.clockOffsetMs) < 1000 && first.uptimeSeconds >= 0)
  const eviction = first.findings.find((finding) => finding.check === 'eviction')
  assert.equal(eviction.level, 'error')
  assert.equal(second.findings.find((finding) => finding.check === 'eviction').level, 'ok')
  assert.deepEqual([third.reachable, third.runId], [false, null])
  const majority = diagnosis.findings.find((finding) => finding.check === 'majority')
  assert.equal(majority.level, 'warning')
  assert(String(diagnosis).includes(`eviction: ${eviction.message}`))
  assert.deepEqual(JSON.parse(JSON.stringify(diagnosis)).nodes, diagnosis.nodes)
  await client.close()
  await assert.rejects(client.doctor(), ClosedError)
})

test('outcomes of requests are counted per node', async (t) => {
  const { servers, client } = await open(t)
  const before = client.stats().nodes.map(({ address, outcomes }) => ({ address, outcomes }))
  assert.deepEqual(before, servers.urls.map((address) => ({ address, outcomes: {} })))
  const lease = await client.lock('r')
  await assert.rejects(client.lock('r', { wait: 0 }))
  await lease.release()
  await until(() => {
    const outcomes = client.stats().nodes.map((node) => node.outcomes)
    return outcomes.every((node) => node.granted === 1 && node.held === 1 && node.confirmed >= 1)
  })
})

test('a node that has just restarted has no vote with the restart guard', async (t) => {
  const servers = await Servers.start(t, 1)
  const client = new Client(servers.urls, { ttl: 5000, restartGuard: 5000, nodeTimeout: 1500 })
  t.after(() => client.close())
  await assert.rejects(client.lock('r', { wait: 0 }), (error) => {
    assert(error instanceof QuorumError)
    assert.equal(error.nodes[0].outcome, 'guarded')
    return true
  })
  assert.equal(client.stats().nodes[0].outcomes.guarded, 1)
  await until(() => client.lock('r').then((lease) => lease.release(), () => false))
  const lease = await client.lock('r')
  await assert.rejects(lease.extend(5001), ConfigError)
  await assert.rejects(client.lock('s', { ttl: 5001 }), /restartGuard, which is 5 s/)
  assert(lease.valid)
})

test('duplicate nodes are a configuration error', async (t) => {
  const servers = await Servers.start(t, 1)
  const urls = [servers.urls[0], servers.urls[0].replace('127.0.0.1', 'localhost')]
  const client = new Client(urls)
  t.after(() => client.close())
  await assert.rejects(client.lock('r'), (error) => {
    assert(error instanceof ConfigError)
    assert.equal(error.message, 'nodes 1 and 2 are the same server, whose vote would count twice [2 duplicate]')
    assert.deepEqual(error.nodes.map(({ address }) => address), urls)
    return true
  })
})
