// Telemetry of a client: diagnostics channels, statistics, Prometheus, OpenTelemetry.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { subscribe, tracingChannel, unsubscribe } from 'node:diagnostics_channel'
import { test } from 'node:test'
import { Worker } from 'node:worker_threads'
import { SpanStatusCode } from '@opentelemetry/api'
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics'
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base'
import promClient from 'prom-client'
import { Client, ConfigError, LockTimeoutError, QuorumError } from 'quorlock'
import { instrument } from 'quorlock/opentelemetry'
import { register } from 'quorlock/prometheus'
import { loadCopy } from './copies.js'
import { open, steal, until } from './servers.js'

const LEVELS = ['error', 'warn', 'info', 'debug', 'trace']

/** Collects all log records of these levels until the end of the test. */
function listen(t, levels = LEVELS) {
  const records = []
  const collect = (record) => records.push(record)
  for (const level of levels) subscribe(`quorlock:${level}`, collect)
  t.after(() => levels.forEach((level) => unsubscribe(`quorlock:${level}`, collect)))
  return records
}

const named = (records, name) => records.filter((record) => record.name === name)
const loud = (records) => records.filter(({ level }) => ['error', 'warn', 'info'].includes(level))

test('waiting is not logged above debug level, and a lost lease is a warning', async (t) => {
  const records = listen(t)
  const { servers, client } = await open(t, 3, { ttl: 3_000, nodeTimeout: 900 })
  const lease = await client.lock('r')
  await assert.rejects(client.lock('r', { wait: 50 }), LockTimeoutError)
  await until(() => named(records, 'acquire.failed').length === 1)
  assert.deepEqual(named(records, 'waiting.begun').map(({ level, resource }) => [level, resource]), [['debug', 'r']])
  assert.deepEqual(loud(records), [])
  await steal(servers, 'r')
  await until(() => !lease.valid)
  await until(() => named(records, 'lease.lost').length === 1)
  const [lost] = loud(records)
  assert.deepEqual([lost.level, lost.resource, lost.fence, lost.outcome], ['warn', 'r', lease.fence, 'taken'])
  assert(!JSON.stringify(records).includes(lease.token))
  assert.equal(client.stats().losses, 1)
})

test('levels without subscribers are not recorded', async (t) => {
  const records = listen(t, ['warn'])
  const { client } = await open(t, 1)
  await client.using('r', () => {})
  const more = listen(t, ['debug'])
  await client.using('r', () => {})
  await until(() => named(more, 'lease.released').length === 1)
  assert.equal(named(more, 'lease.acquired').length, 1)
  assert.deepEqual(records, [])
})

const quickStart = (url) => `
  import { subscribe } from 'node:diagnostics_channel'
  import { Client } from 'quorlock'
  subscribe('quorlock:debug', (record) => console.log(record.name))
  const client = new Client(['${url}'])
  await client.lock('r')
`

test('a log subscriber does not keep the process alive', async (t) => {
  const { servers } = await open(t, 1)
  const args = ['--input-type=module', '--eval', quickStart(servers.urls[0])]
  const ended = spawnSync(process.execPath, args, { encoding: 'utf8', timeout: 60_000 })
  assert.equal(ended.status, 0, ended.stderr)
})

test('a worker thread receives log records, and may be terminated at any time', async (t) => {
  const { servers } = await open(t, 1)
  for (let count = 0; count < 5; count++) {
    const program = `
      import { parentPort } from 'node:worker_threads'
      ${quickStart(servers.urls[0]).replace('console.log(record.name)', 'parentPort.postMessage(record.name)')}
      await client.close()
      setInterval(() => {}, 1000)
    `
    const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(program.replace("'quorlock'", `'${import.meta.resolve('quorlock')}'`))}`))
    await new Promise((resolve, reject) => {
      worker.on('error', reject)
      worker.on('message', (name) => name === 'lease.acquired' && resolve())
    })
    await worker.terminate()
  }
})

test('a subscriber of the errors only gets those of acquires', async () => {
  const client = new Client(['memory://observability-errors'], { wait: 0 })
  const errors = []
  const subscriber = { error: ({ error }) => errors.push(error) }
  const channel = tracingChannel('quorlock:acquire')
  channel.subscribe(subscriber)
  await client.using('r', () => assert.rejects(client.lock('r'), LockTimeoutError))
  channel.unsubscribe(subscriber)
  assert.equal(errors.length, 1)
})

test('outcomes of acquires are counted', async (t) => {
  const { servers, client } = await open(t)
  assert.deepEqual([client.stats().attempts, client.stats().nodes[0].state], [0, 'idle'])
  const lease = await client.lock('r')
  assert.equal(client.stats().held, 1)
  await assert.rejects(client.lock('r', { wait: 50 }))
  const controller = new AbortController()
  const waiting = client.lock('r', { signal: controller.signal })
  await until(() => client.stats().waiting === 1)
  controller.abort()
  await assert.rejects(waiting)
  await lease.extend()
  await lease.release()
  await until(() => client.stats().cancelled === 1)
  await servers.ask({ kill: 0 })
  await servers.ask({ kill: 1 })
  await assert.rejects(client.lock('r', { wait: 0 }), QuorumError)
  const { attempts, wins, timeouts, noQuorum, releases, losses, extensions, held, ...stats } = client.stats()
  assert.deepEqual([attempts, wins, timeouts, noQuorum], [4, 1, 1, 1])
  assert.deepEqual([releases, losses, extensions, held], [1, 0, 1, 0])
  assert.equal(stats.acquireSeconds.count, 1)
  assert.equal(stats.acquireSeconds.counts.length, stats.acquireSeconds.bounds.length + 1)
  assert(stats.waitSeconds.sum >= 0.05)
  assert(stats.nodes[2].answerSeconds.count >= 3)
})

test('prom-client exports the counts', async (t) => {
  const { servers, client } = await open(t)
  const registry = new promClient.Registry()
  register(registry, client)
  await client.using('r', () => assert.rejects(client.lock('r', { wait: 0 })))
  const text = await registry.metrics()
  assert.match(text, /^# TYPE quorlock_acquires_total counter$/m)
  assert.match(text, /^quorlock_acquires_total{outcome="won"} 1$/m)
  assert.match(text, /^quorlock_acquires_total{outcome="timeout"} 1$/m)
  assert.match(text, /^quorlock_acquire_seconds_bucket{le="\+Inf"} 1$/m)
  assert.match(text, /^quorlock_acquire_seconds_bucket{le="0.00005"} 0$/m)
  assert.match(text, /^quorlock_acquire_seconds_count 1$/m)
  for (const url of servers.urls) assert(text.includes(`quorlock_node_up{node="${url}"} 1\n`))
  const histogram = (await registry.getMetricsAsJSON()).find(({ name }) => name === 'quorlock_acquire_seconds')
  assert.equal(histogram.values.length, 23)

  const several = new promClient.Registry(promClient.openMetricsContentType)
  register(several, { orders: client, users: new Client(['memory://users']) })
  assert.match(await several.metrics(), /^quorlock_acquires_total{client="orders",outcome="won"} 1$/m)
  assert.match(await several.metrics(), /^quorlock_acquires_total{client="users",outcome="won"} 0$/m)
  assert.throws(() => register(several, {}), ConfigError)
})

test('exporters accept a client of another copy of the package', async (t) => {
  const { Client: Other } = loadCopy()
  const client = new Other(['memory://observability-copy'], { wait: 0 })
  t.after(() => client.close())
  assert(!(client instanceof Client))
  const registry = new promClient.Registry()
  register(registry, client)
  const spans = new InMemorySpanExporter()
  const stop = instrument(client, { tracerProvider: new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] }) })
  await client.using('r', () => assert.rejects(client.lock('r'), { code: 'TIMEOUT' }))
  stop()
  assert.match(await registry.metrics(), /^quorlock_acquires_total{outcome="timeout"} 1$/m)
  const outcomes = spans.getFinishedSpans().map(({ attributes }) => attributes['quorlock.outcome'])
  assert.deepEqual(outcomes, ['won', 'timeout'])
})

test('OpenTelemetry exports spans and metrics', async (t) => {
  const { servers, client } = await open(t)
  const spans = new InMemorySpanExporter()
  const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] })
  const metrics = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
  const reader = new PeriodicExportingMetricReader({ exporter: metrics, exportIntervalMillis: 3_600_000 })
  const meterProvider = new MeterProvider({ readers: [reader] })
  const stop = instrument(client, { meterProvider, tracerProvider })
  const fence = await client.using('r', async (lease) => {
    await assert.rejects(client.lock('r', { wait: 0 }), LockTimeoutError)
    return lease.fence
  })
  await servers.ask({ kill: 0 })
  await servers.ask({ kill: 1 })
  await assert.rejects(client.lock('r', { wait: 0 }), QuorumError)

  const [won, timeout, failed] = spans.getFinishedSpans()
  assert.deepEqual(won.attributes, {
    'quorlock.resources': ['r'],
    'quorlock.fence': fence,
    'quorlock.outcome': 'won',
  })
  assert.deepEqual([timeout.name, timeout.attributes['error.type']], ['quorlock.acquire', 'timeout'])
  assert.equal(timeout.status.code, SpanStatusCode.UNSET)
  assert.equal(failed.status.code, SpanStatusCode.ERROR)

  await reader.forceFlush()
  const scope = metrics.getMetrics().at(-1).scopeMetrics.find(({ scope }) => scope.name === 'quorlock')
  const points = (name) => scope.metrics.find(({ descriptor }) => descriptor.name === name).dataPoints
  const value = (name, attribute, value) => points(name).find(({ attributes }) => attributes[attribute] === value).value
  assert.equal(value('quorlock.acquires', 'quorlock.outcome', 'won'), 1)
  assert.equal(value('quorlock.acquires', 'quorlock.outcome', 'timeout'), 1)
  assert.equal(value('quorlock.acquire.duration', 'quorlock.outcome', 'won').count, 1)
  assert.equal(value('quorlock.node.up', 'quorlock.node', servers.urls[2]), 1)
  assert.equal(points('quorlock.acquire.time')[0].value, client.stats().acquireSeconds.sum)

  stop()
  await assert.rejects(client.lock('r', { wait: 0 }))
  assert.equal(spans.getFinishedSpans().length, 3)
  await Promise.all([meterProvider.shutdown(), tracerProvider.shutdown()])
})

test('OpenTelemetry tells the metrics of clients apart', async () => {
  const metrics = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
  const reader = new PeriodicExportingMetricReader({ exporter: metrics, exportIntervalMillis: 3_600_000 })
  const meterProvider = new MeterProvider({ readers: [reader] })
  const clients = { orders: new Client(['memory://orders']), users: new Client(['memory://users']) }
  const stops = Object.entries(clients).map(([name, client]) => instrument(client, { name, meterProvider }))
  for (const resource of ['a', 'b']) await clients.orders.using(resource, () => {})
  await clients.users.using('a', () => {})
  assert.throws(() => instrument(new Client(['memory://x']), { name: 'users', meterProvider }), {
    name: 'ConfigError',
    message: 'another client is instrumented with the name "users"',
  })

  await reader.forceFlush()
  const { dataPoints } = metrics
    .getMetrics()
    .at(-1)
    .scopeMetrics[0].metrics.find(({ descriptor }) => descriptor.name === 'quorlock.acquires')
  const won = dataPoints.filter(({ attributes }) => attributes['quorlock.outcome'] === 'won')
  assert.deepEqual(
    won.map(({ attributes, value }) => [attributes['quorlock.client'], value]),
    [['orders', 2], ['users', 1]],
  )

  stops.forEach((stop) => stop())
  const again = instrument(clients.users, { name: 'users', meterProvider })
  again()
  await meterProvider.shutdown()
})
