// `quorlock/testing`: tests of users without servers and without sleeping. Each test covers seconds or minutes of
// quorlock's time, and takes milliseconds.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { createRequire } from 'node:module'
import { mock, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { Client, ConfigError, LeaseLostError, LockTimeoutError, QuorumError } from 'quorlock'
import { Nodes } from 'quorlock/testing'

const run = promisify(execFile)

/** Returns fresh nodes for one test. */
function open(t) {
  const nodes = new Nodes(3)
  t.after(() => nodes.close())
  return nodes
}

const outcomes = (error) => error.nodes.map(({ outcome }) => outcome)

/** Returns the error that the promise rejects with. */
const rejection = (promise) => promise.then(() => assert.fail('it must reject'), (error) => error)

test('contention ends with the wait', async (t) => {
  const nodes = open(t)
  const client = nodes.client({ wait: 30_000 })
  const other = await nodes.hold('orders:42')
  await assert.rejects(client.lock('orders:42', { wait: 0 }), { name: 'LockTimeoutError', holder: 'another process' })
  const waiting = rejection(client.lock('orders:42'))
  await nodes.advance(30_000)
  assert.ok((await waiting) instanceof LockTimeoutError)
  await nodes.fastForward(() => assert.rejects(client.lock('orders:42'), LockTimeoutError))
  assert.ok(other.valid, 'it was renewed meanwhile')
  await other.release()
  const lease = await client.lock('orders:42')
  assert.ok(lease.fence > other.fence)
  await lease.release()
})

test('an outage is a QuorumError, and ends', async (t) => {
  const nodes = open(t)
  const client = nodes.client()
  await client.using('orders:42', () => {})
  nodes.cut()
  const error = await nodes.fastForward(() => rejection(client.lock('orders:42')))
  assert.ok(error instanceof QuorumError)
  assert.deepEqual(outcomes(error), ['unreachable', 'unreachable', 'unreachable'])
  nodes.mend()
  await client.using('orders:42', { wait: 0 }, () => {})
})

test('frozen nodes time out', async (t) => {
  const nodes = open(t)
  const client = nodes.client()
  await client.using('orders:42', () => {})
  nodes[0].freeze()
  nodes[1].freeze()
  const error = await nodes.fastForward(() => rejection(client.lock('orders:42')))
  assert.ok(error instanceof QuorumError)
  assert.ok(outcomes(error).includes('timeout'))
  nodes.thaw()
  await client.using('orders:42', () => {})
})

test('a lease without nodes is lost, and its signal aborts', async (t) => {
  const nodes = open(t)
  const lease = await nodes.client({ ttl: 10_000 }).lock('orders:42')
  const { signal } = lease
  await nodes.advance(300_000)
  assert.ok(lease.valid && !signal.aborted, 'it was renewed')
  let heard
  signal.addEventListener('abort', () => (heard = signal.reason))
  nodes.cut()
  await nodes.advance(10_000)
  assert.ok(heard instanceof LeaseLostError)
  assert.throws(() => lease.check(), LeaseLostError)
})

test('a suspension loses the lease', async (t) => {
  const nodes = open(t)
  const lease = await nodes.client({ ttl: 10_000 }).lock('orders:42')
  await nodes.suspend(9_000)
  assert.ok(lease.valid)
  await nodes.suspend(10_000)
  assert.ok(!lease.valid)
})

test('a stolen lease is lost at once', async (t) => {
  const nodes = open(t)
  const lease = await nodes.client({ keyPrefix: 'app:' }).lock('orders:42')
  const { signal } = lease
  const thief = await nodes.steal('app:orders:42')
  assert.ok(signal.aborted && !lease.valid && thief.valid)
  assert.ok(await thief.release())
})

test('a restart without data is guarded', async (t) => {
  const nodes = open(t)
  const client = nodes.client({ restartGuard: 60_000, wait: 0 })
  await client.using('orders:42', () => {})
  nodes[0].forget()
  nodes[1].forget()
  assert.deepEqual(outcomes(await rejection(client.lock('orders:42'))).slice(0, 2), ['guarded', 'guarded'])
  await nodes.advance(61_000)
  await client.using('orders:42', () => {})
})

test('fake timers of a test framework do not matter', async (t) => {
  mock.timers.enable()
  t.after(() => mock.timers.reset())
  const nodes = open(t)
  const lease = await nodes.client().lock('orders:42')
  await nodes.suspend(60_000)
  assert.ok(!lease.valid)
})

test('require and import give the same class, whose nodes are fresh', async (t) => {
  const required = createRequire(import.meta.url)('quorlock/testing')
  assert.equal(required.Nodes, Nodes)
  const one = open(t)
  const other = new Nodes(2)
  t.after(() => other[Symbol.asyncDispose]())
  assert.equal(one.length, 3)
  assert.deepEqual([...other].map(({ url }) => url), other.urls)
  assert.ok(one.urls.every((url) => !other.urls.includes(url)))
  for (const wrong of [0, 33, -1, 1.5, '3']) assert.throws(() => new Nodes(wrong), ConfigError)
  for (const wrong of [-1, NaN, Infinity, '5', undefined]) await assert.rejects(one.advance(wrong), ConfigError)
})

test('the example on the page docs/testing.md passes', async () => {
  const directory = fileURLToPath(new URL('../../examples/testing', import.meta.url))
  // Without the variable of the outer runner, which would take the output.
  const { NODE_TEST_CONTEXT, ...env } = process.env
  const { stdout } = await run(process.execPath, ['--test'], { cwd: directory, env })
  assert.match(stdout, /^. pass [1-9]/m)
})

test('close ends faults and closes clients', async () => {
  const nodes = new Nodes()
  const client = nodes.client()
  const held = await nodes.hold('r')
  nodes.freeze()
  nodes.cut()
  await nodes.close()
  assert.ok(!held.valid)
  await assert.rejects(client.lock('r'), { code: 'CLOSED' })
})

test('moving the clock of clients of real nodes is a ConfigError', async (t) => {
  const nodes = open(t)
  const real = new Client(['redis://127.0.0.1:1'], { wait: 0 })
  await assert.rejects(real.lock('r'), QuorumError)
  await assert.rejects(nodes.advance(60_000), { name: 'ConfigError', message: /redis:\/\/127\.0\.0\.1:1/ })
  await assert.rejects(nodes.suspend(60_000), ConfigError)
  await assert.rejects(nodes.fastForward(() => assert.fail('it is not called')), ConfigError)
  await real.close()
})
