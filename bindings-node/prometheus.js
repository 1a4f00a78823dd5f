// Exports the statistics of clients to Prometheus, through prom-client.

'use strict'

const { ConfigError } = require('./errors.js')
const { clientOf, isClient } = require('./options.js')

function register(registry, clients) {
  const named = isClient(clients) ? [[{}, clients]] : Object.entries(clients ?? {}).map(labelled)
  if (named.length === 0) throw new ConfigError('register needs a client, or an object of several, each with a name')
  for (const { name, kind, help } of named[0][1].metrics()) {
    registry.registerMetric(new Metric(kind === 'counter' ? `${name}_total` : name, name, kind, help, named))
  }
}

const labelled = ([name, client]) => [{ client: name }, clientOf(client)]

/** A metric with the interface that a registry of prom-client calls. */
class Metric {
  aggregator = 'sum'
  #source
  #clients

  constructor(name, source, type, help, clients) {
    Object.assign(this, { name, type, help })
    this.#source = source
    this.#clients = clients
  }

  async get() {
    const values = this.#clients.flatMap(([labels, client]) => {
      const { samples } = client.metrics().find(({ name }) => name === this.#source)
      return samples.flatMap((sample) => this.#values({ ...labels, ...Object.fromEntries(sample.labels) }, sample.value))
    })
    return { name: this.name, help: this.help, type: this.type, values, aggregator: this.aggregator }
  }

  #values(labels, value) {
    if (this.type !== 'histogram') return [{ labels, value }]
    let upTo = 0
    const bucket = (count, index) => {
      upTo += count
      const le = value.bounds[index] ?? '+Inf'
      return { metricName: `${this.name}_bucket`, labels: { ...labels, le }, value: upTo }
    }
    return [
      ...value.counts.map(bucket),
      { metricName: `${this.name}_sum`, labels, value: value.sum },
      { metricName: `${this.name}_count`, labels, value: value.count },
    ]
  }

  /** Does nothing: the counts belong to the client, and are never reset. */
  reset() {}
}

module.exports = { register }
