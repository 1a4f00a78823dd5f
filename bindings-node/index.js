// The JavaScript API of the lock: turns operations of the addon (bindings-node/src) into promises, errors, signals and
// diagnostics channels. The lock itself is in the addon: nothing here decides who holds it. index.d.ts documents it.
// index.mjs exports the same classes to ES modules.

'use strict'

// First, because in some bundles no other `require` works, and the error that this one throws tells what to do.
const native = require('#native')
const { inspect } = require('node:util')
const { isMainThread } = require('node:worker_threads')
const { listen, traceAcquire } = require('./channels.js')
const { refuseCloning } = require('./cloning.js')
const { ClosedError, ConfigError, LeaseLostError, LockTimeoutError, QuorlockError, QuorumError, callSite, unwrap } = require('./errors.js')
const { leaders, underLease } = require('./leading.js')
const { Lease, blocksOf, sharedBlock } = require('./lease.js')
const { begin, mailbox, resultOf, runWork, valueOf } = require('./operations.js')
const { checkNoWait, checkResult, checkWork, nameOf, namesOf, nodesOf, optionsNamed, optionsOf, signalOf } = require('./options.js')
const { LeasePromise } = require('./promises.js')
const { Diagnosis, camelCase, semaphoreStatusOf, statusOf } = require('./status.js')

/** Returns a function that calls `credentials` for each request of the core, and answers it. */
function asking(credentials) {
  return async (request) => {
    try {
      request.give(await credentials(request.address))
    } catch (error) {
      // Only the class: the text may contain a secret.
      const name = error?.constructor?.name
      request.fail(typeof name === 'string' && name ? name : typeof error)
    }
  }
}

/**
 * Registers a listener that closes all clients when the process exits, and releases their leases, so that others need
 * not wait for them to expire. All copies of this module share one listener: Node.js warns of a leak at the eleventh.
 */
function releaseAtExit() {
  const key = Symbol.for('quorlock.exit')
  if (!process[key]) {
    const releases = new Set()
    const listener = () => {
      // All releases together may take 1,000 ms.
      const end = performance.now() + 1_000
      for (const release of releases) release(Math.max(0, end - performance.now()))
    }
    Object.defineProperty(process, key, { value: { releases, listener } })
  }
  const { releases, listener } = process[key]
  releases.add(native.releaseAll)
  if (!process.listeners('exit').includes(listener)) process.on('exit', listener)
}

/**
 * Acquires with `start`, a method of the addon, within the tracing channel. Resolves to a lease, or to null if a try
 * finds that others hold the lock.
 */
function traced(client, resources, options, start, site) {
  const acquire = async () => {
    listen()
    const lease = unwrap(await begin(options, start), site)
    return lease && new Lease(lease)
  }
  return traceAcquire(acquire, client, resources)
}

/** Calls `work` with a lease, and releases the lease. Resolves to the result of `work`. */
async function resultUnder(lease, work, client) {
  let result
  try {
    result = await runWork(lease, () => work(lease), client && sharedBlock(client, lease))
    checkResult(result)
  } catch (error) {
    // Without options, `release` never rejects, so the error of the work is never replaced.
    await lease.release()
    throw error
  }
  await lease[Symbol.asyncDispose]()
  return result
}

class Semaphore {
  #client
  #native

  constructor(client, native) {
    this.#client = client
    this.#native = native
    refuseCloning(this, 'a Semaphore works only in the thread that created it: create one in each thread')
  }

  get resource() {
    return this.#native.resource
  }

  get limit() {
    return this.#native.limit
  }

  get permits() {
    return this.#native.permits
  }

  acquire(options) {
    const names = ['signal', 'wait', 'permits']
    return LeasePromise.of(this.#traced(names, options, (rest) => this.#native.acquire(rest), callSite()), 'acquire')
  }

  tryAcquire(options) {
    return LeasePromise.of(this.#traced(['signal'], options, () => this.#native.tryAcquire(), callSite()), 'tryAcquire')
  }

  async using(options, work) {
    if (work === undefined && typeof options === 'function') [options, work] = [undefined, options]
    checkWork(work)
    return resultUnder(await this.acquire(options), work)
  }

  async status() {
    return semaphoreStatusOf(await valueOf(this.#native.status()))
  }

  [inspect.custom](_, options) {
    return `Semaphore ${inspect({ resource: native.shortened(this.resource), limit: this.limit }, options)}`
  }

  async #traced(names, options, start, site) {
    const given = options === undefined ? undefined : optionsNamed(names, options)
    return traced(this.#client, [this.resource], given, start, site)
  }
}

class Client {
  #native

  constructor(nodes, options) {
    listen()
    const { credentials, ...rest } = optionsOf(options)
    // The core refuses what is no function.
    const ask = typeof credentials === 'function' ? asking(credentials) : undefined
    this.#native = unwrap(mailbox.open(nodesOf(nodes), ask ? rest : { ...rest, credentials }, ask))
    refuseCloning(this, 'a Client works only in the thread that created it: create one in each thread')
    // In a worker thread, leases are released when the thread's objects are finalized.
    if (isMainThread) releaseAtExit()
  }

  static from(clients, options) {
    const { nodesFrom } = require('./from.js')
    const { urls, options: rest, connect } = nodesFrom(clients, optionsOf(options))
    const client = new this(urls, rest)
    // The client asks for no credentials before its first connection.
    connect?.(client.nodes)
    return client
  }

  get nodes() {
    return this.#native.addresses
  }

  get closed() {
    return this.#native.closed
  }

  lock(resources, options) {
    return LeasePromise.of(this.#traced('acquire', resources, options, callSite()), 'lock')
  }

  tryLock(resources, options) {
    return LeasePromise.of(this.#traced('tryAcquire', resources, options, callSite()), 'tryLock')
  }

  async using(resources, options, work) {
    if (work === undefined && typeof options === 'function') [options, work] = [undefined, options]
    const { mode } = optionsOf(options)
    checkWork(work)
    const lease = await this.lock(resources, options)
    return resultUnder(lease, work, mode === undefined ? undefined : this)
  }

  semaphore(resource, options) {
    const { limit, ...rest } = optionsOf(options, 'limit', 10)
    return new Semaphore(this, unwrap(this.#native.semaphore(nameOf(resource), limit, rest)))
  }

  async locked(resources, options) {
    const rest = optionsNamed(['mode'], options)
    return valueOf(this.#native.locked(namesOf(resources), rest))
  }

  adopt(text, options) {
    const site = callSite()
    const adopt = async () => {
      listen()
      // The core refuses an empty text like any other that is none.
      const given = typeof text === 'string' ? text : ''
      return new Lease(unwrap(await begin(options, (rest) => this.#native.adopt(given, rest)), site))
    }
    return LeasePromise.of(adopt(), 'adopt')
  }

  async elect(resource, options, lead) {
    const site = callSite()
    if (lead === undefined && typeof options === 'function') [options, lead] = [undefined, options]
    // A copy, because the program may change its object before the next campaign.
    const { signal: given, ...rest } = optionsOf(options)
    const signal = signalOf(given)
    checkWork(lead, 'elect', 'as the leader')
    const name = nameOf(resource)
    listen()
    const start = (own) => this.#native.elect(name, own, blocksOf(this))
    for (;;) {
      const lease = new Lease(unwrap(await begin({ ...rest, signal }, start), site))
      const led = await underLease(lease, signal, lead)
      if (led) return led.result
    }
  }

  watch(resource, options) {
    const { signal } = optionsNamed(['signal'], options)
    const name = nameOf(resource)
    const given = signalOf(signal)
    listen()
    return leaders(unwrap(this.#native.watch(name)), given)
  }

  async status(resource) {
    return statusOf(await valueOf(this.#native.status(nameOf(resource))))
  }

  async forceRelease(resource) {
    return valueOf(this.#native.forceRelease(nameOf(resource)))
  }

  stats() {
    return camelCase(JSON.parse(this.#native.stats()))
  }

  metrics() {
    return JSON.parse(this.#native.metrics())
  }

  async doctor() {
    return new Diagnosis(...(await valueOf(this.#native.doctor())))
  }

  async close() {
    unwrap(await resultOf(this.#native.close()))
  }

  async [Symbol.asyncDispose]() {
    await this.close()
  }

  [inspect.custom](_, options) {
    const { nodes, closed } = this
    return `Client ${inspect({ nodes, closed }, options)}`
  }

  async #traced(method, resources, options, site) {
    if (method === 'tryAcquire') checkNoWait(optionsOf(options))
    const names = namesOf(resources)
    const blocks = method === 'acquire' ? blocksOf(this) : undefined
    return traced(this, names, options, (rest) => this.#native[method](names, rest, blocks), site)
  }
}

module.exports = {
  Client,
  ClosedError,
  ConfigError,
  Diagnosis,
  Lease,
  LeaseLostError,
  LockTimeoutError,
  QuorlockError,
  QuorumError,
  Semaphore,
}
