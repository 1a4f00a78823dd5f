// A client's reports about its nodes: the doctor, statistics, and guarded and duplicate nodes.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ClosedError, Diagnosis } from 'quorlock'
import { open } from './servers.js'

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
