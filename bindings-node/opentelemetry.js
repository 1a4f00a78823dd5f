// Exports a client's statistics to OpenTelemetry as metrics, and its acquires as trace spans.

'use strict'

const { SpanKind, SpanStatusCode, metrics, trace } = require('@opentelemetry/api')
const { tracingChannel } = require('node:diagnostics_channel')
const { ConfigError, isOwn } = require('./errors.js')
const { clientOf, optionsNamed } = require('./options.js')
const { version } = require('./package.json')

/** The names of the clients that are exported now. */
const names = new Set()
let lastNumber = 0

function instrument(client, options) {
  const known = optionsNamed(['name', 'meterProvider', 'tracerProvider'], options)
  const { name = `client-${++lastNumber}`, meterProvider = metrics, tracerProvider = trace } = known
  clientOf(client)
  // Without names, the counts of two clients would be one time series, which shows only one of them.
  if (typeof name !== 'string') throw new ConfigError(`name must be a string, not ${typeof name}`)
  if (names.has(name)) throw new ConfigError(`another client is instrumented with the name ${JSON.stringify(name)}`)
  const attributes = { 'quorlock.client': name }
  const meter = meterProvider.getMeter('quorlock', version)
  const stopReading = observe(client, meter, attributes)
  const stopTracing = follow(client, meter, tracerProvider.getTracer('quorlock', version), attributes)
  names.add(name)
  return () => {
    names.delete(name)
    stopReading()
    stopTracing()
  }
}

/**
 * Registers observable instruments that read the client's statistics at each collection. Returns a
 * function that removes them.
 */
function observe(client, meter, attributes) {
  const read = (metricName, part) => (result) => {
    const { samples } = client.metrics().find(({ name }) => name === metricName)
    for (const { labels, value } of samples) {
      result.observe(part ? value[part] : value, { ...attributes, ...attributesOf(labels) })
    }
  }
  const stops = []
  const add = (instrument, callback) => {
    instrument.addCallback(callback)
    stops.push(() => instrument.removeCallback(callback))
  }
  for (const { name: metricName, kind, help: description } of client.metrics()) {
    const name = metricName.replaceAll('_', '.').replace(/\.seconds$/, '')
    if (kind === 'counter') {
      add(meter.createObservableCounter(name, { description, unit: '1' }), read(metricName))
    } else if (kind === 'gauge') {
      add(meter.createObservableGauge(name, { description, unit: '1' }), read(metricName))
    } else {
      // OpenTelemetry has no observable histograms. The sum and the count give the mean.
      add(meter.createObservableCounter(`${name}.time`, { description, unit: 's' }), read(metricName, 'sum'))
      add(meter.createObservableCounter(`${name}.count`, { description, unit: '1' }), read(metricName, 'count'))
    }
  }
  return () => stops.forEach((stop) => stop())
}

const attributesOf = (labels) => Object.fromEntries(labels.map(([name, value]) => [`quorlock.${name}`, value]))

/**
 * Exports each acquire as a span, and records how long it took. Returns a function that stops both.
 */
function follow(client, meter, tracer, attributes) {
  const durations = meter.createHistogram('quorlock.acquire.duration', {
    description: 'Duration of acquires, by outcome.',
    unit: 's',
    advice: { explicitBucketBoundaries: client.stats().acquireSeconds.bounds },
  })
  const underWay = new WeakMap()
  const subscribers = {
    start(context) {
      if (context.client !== client) return
      const span = tracer.startSpan('quorlock.acquire', {
        kind: SpanKind.CLIENT,
        attributes: { 'quorlock.resources': context.resources },
      })
      underWay.set(context, { span, began: performance.now() })
    },
    asyncEnd(context) {
      const { span, began } = underWay.get(context) ?? {}
      if (!span) return
      const outcome = outcomeOf(context)
      if (context.result) span.setAttribute('quorlock.fence', Math.max(...Object.values(context.result.fences)))
      if (isOwn(context.error)) span.setAttribute('error.type', outcome)
      // A timeout only means that others held the lock, so the span is not marked as failed.
      if (isOwn(context.error) && outcome !== 'timeout') {
        span.setStatus({ code: SpanStatusCode.ERROR, message: context.error.message })
      }
      span.setAttribute('quorlock.outcome', outcome)
      durations.record((performance.now() - began) / 1e3, { ...attributes, 'quorlock.outcome': outcome })
      span.end()
    },
  }
  const acquiring = tracingChannel('quorlock:acquire')
  acquiring.subscribe(subscribers)
  return () => acquiring.unsubscribe(subscribers)
}

function outcomeOf({ result, error }) {
  if (result) return 'won'
  // The result of a tryLock while others hold the lock.
  if (result === null) return 'timeout'
  return isOwn(error) ? error.code.toLowerCase() : 'cancelled'
}

module.exports = { instrument }
