// Tests without servers and without sleeping, for any test framework. Here: node:test.

import assert from 'node:assert/strict'
import { afterEach, beforeEach, test } from 'node:test'
import { LeaseLostError } from 'quorlock'
import { Nodes } from 'quorlock/testing'
import { charge } from './orders.js'

let nodes, client

beforeEach(() => {
  nodes = new Nodes(3)
  client = nodes.client()
})

afterEach(() => nodes.close())

const pay = async (fence) => assert.ok(fence > 0)

test('an order is charged', async () => {
  assert.equal(await charge(client, 42, pay), 'charged')
})

test('another process holds the lock', async () => {
  await nodes.hold('orders:42')
  const charged = await nodes.fastForward(() => charge(client, 42, pay)) // the wait of 5 s takes no time
  assert.equal(charged, 'busy, try again later')
})

test('the other process crashes', async () => {
  await nodes.hold('orders:42', { ttl: 3_000, autoExtend: false })
  assert.equal(await nodes.fastForward(() => charge(client, 42, pay)), 'charged')
})

test('two of three nodes are down', async () => {
  nodes[0].cut()
  nodes[1].cut()
  assert.equal(await nodes.fastForward(() => charge(client, 42, pay)), 'out of service')
  nodes.mend()
  assert.equal(await charge(client, 42, pay), 'charged')
})

test('the lock is lost during the payment', async () => {
  await assert.rejects(charge(client, 42, () => nodes.suspend(10_000)), LeaseLostError)
})

test('a long payment keeps the lock', async () => {
  assert.equal(await charge(client, 42, () => nodes.advance(600_000)), 'charged')
})
