// In-memory nodes for unit tests, which fail on demand and whose clock can be moved. testing.d.ts documents it;
// testing.mjs exports the same classes to ES modules.

'use strict'

// Not the global, which a test framework may replace with a fake one.
const { setImmediate } = require('node:timers')
const { unwrap } = require('./errors.js')
const { Client } = require('./index.js')
const native = require('#native')

/** Resolves once the event loop has delivered what has happened so far: results, and signals of lost leases. */
const delivered = () => new Promise((resolve) => setImmediate(resolve))

/** The faults of one node, or of all. */
class Faults {
  #apply

  constructor(apply) {
    this.#apply = apply
  }

  freeze() {
    this.#apply('freeze')
  }

  thaw() {
    this.#apply('thaw')
  }

  cut() {
    this.#apply('cut')
  }

  mend() {
    this.#apply('mend')
  }

  forget() {
    this.#apply('forget')
  }
}

class Node extends Faults {
  constructor(nodes, position) {
    super((fault) => nodes.apply(position, fault))
    this.url = nodes.urls[position]
  }
}

class Nodes extends Faults {
  #native
  #clients = []
  #other
  /** A lease that is not referenced any more is not renewed. */
  #held = []

  constructor(count = 3) {
    const nodes = unwrap(native.testNodes(count))
    super((fault) => nodes.apply(null, fault))
    this.#native = nodes
    this.length = count
    for (let position = 0; position < count; position++) this[position] = new Node(nodes, position)
  }

  get urls() {
    return this.#native.urls
  }

  client(options) {
    const client = new Client(this.urls, options)
    this.#clients.push(client)
    return client
  }

  async hold(resources, options) {
    this.#other ??= this.client({ wait: 0, maxHold: null, holder: 'another process' })
    const lease = await this.#other.lock(resources, options)
    this.#held.push(lease)
    return lease
  }

  async steal(resources, options) {
    this.#native.deleteKeys([resources].flat())
    const lease = await this.hold(resources, options)
    this.#native.verifyLeases()
    await delivered()
    return lease
  }

  async advance(time) {
    unwrap(this.#native.advance(time))
    await delivered()
  }

  async suspend(time) {
    unwrap(this.#native.suspend(time))
    await delivered()
  }

  async fastForward(work) {
    const flying = unwrap(this.#native.fastForward())
    try {
      return await work()
    } finally {
      flying.stop()
    }
  }

  async close() {
    this.thaw()
    this.mend()
    const clients = this.#clients.splice(0)
    this.#held.length = 0
    this.#other = undefined
    await Promise.all(clients.map((client) => client.close()))
  }

  *[Symbol.iterator]() {
    for (let position = 0; position < this.length; position++) yield this[position]
  }

  async [Symbol.asyncDispose]() {
    await this.close()
  }
}

module.exports = { Nodes }
