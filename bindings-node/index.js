// The JavaScript API of the lock: turns operations of the addon (bindings-node/src) into promises, errors, signals and
// diagnostics channels. The lock itself is in the addon: nothing here decides who holds it. index.d.ts documents it.
// index.mjs exports the same classes to ES modules.

'use strict'

// First, because in some bundles no other `require` works, and the error that this one throws tells what to do.
const native = require('#native')
const { channel, tracingChannel } = require('node:diagnostics_channel')
const { setImmediate, setInterval } = require('node:timers')
const { inspect } = require('node:util')
const { isMainThread } = require('node:worker_threads')
const {
  ClosedError,
  ConfigError,
  LeaseLostError,
  LockTimeoutError,
  QuorlockError,
  QuorumError,
  callSite,
  errorOf,
  unwrap,
} = require('./errors.js')
const { openBlocks, runHolding } = require('./holding.js')
const { checkNoWait, checkResult, checkWork, nameOf, namesOf, nodesOf, optionsNamed, optionsOf, signalOf, warnAboutUnit } = require('./options.js')
const { LeasePromise } = require('./promises.js')
const { LossSignal, onAbort } = require('./signals.js')

/** The callbacks for the results of operations in progress, by the number of the operation. */
const underWay = new Map()

/** Keeps the event loop alive while operations are under way or functions run under a lock, because the mailbox does not. */
const alive = setInterval(() => {}, 2 ** 31 - 1).unref()

/** The number of functions given to `using` or `elect` that run. */
let running = 0

const mailbox = new native.Mailbox((numbers, results) => {
  if (numbers.length > 1) {
    // The code that waits for these results often starts the next operations. They send their requests together.
    native.cork()
    setImmediate(native.uncork)
  }
  for (let index = 0; index < numbers.length; index++) take(numbers[index])(results[index])
})

function expect(number, then) {
  alive.ref()
  underWay.set(number, then)
}

function take(number) {
  const then = underWay.get(number)
  underWay.delete(number)
  letEnd()
  return then
}

/** Lets the process end if nothing is under way. */
function letEnd() {
  if (underWay.size === 0 && running === 0) alive.unref()
}

/**
 * Calls `work`, the function given to `using` or `elect`, and resolves to its result. Keeps the process alive meanwhile: a
 * function that only waits for a signal has nothing else that does.
 */
async function runWork(lease, work, shared) {
  running++
  alive.ref()
  try {
    return await runHolding(lease, work, shared)
  } finally {
    running--
    letEnd()
  }
}

/** Resolves with the result of an operation. */
const resultOf = (number) => new Promise((resolve) => expect(number, resolve))

/**
 * Resolves with the result of an operation. If the signal aborts first, cancels the operation and
 * rejects with the signal's reason.
 */
function resultUnlessAborted(number, signal) {
  return new Promise((resolve, reject) => {
    const abort = () => {
      mailbox.cancel(number)
      take(number)
      reject(signal.reason)
    }
    const stop = onAbort(signal, abort)
    expect(number, (result) => {
      stop()
      resolve(result)
    })
  })
}

/** Cancels an operation, and resolves with `result` instead. Does nothing if it is not under way any more. */
function finish(number, result) {
  if (!underWay.has(number)) return
  mailbox.cancel(number)
  take(number)(result)
}

/** The result of an operation that was ended because the caller does not want it any more. */
const ENDED = Symbol('ended')

/** Returns a function that calls `credentials` for each request of the core, and answers it. */
function asking(credentials) {
  return async (request) => {
    try {
      request.give(await credentials(request.address))
    } catch (error) {
      // Only the class: the text may contain a secret.
      request.fail(error?.constructor?.name || typeof error)
    }
  }
}

/** The log levels, from the most to the least severe. Each has a channel. */
const levels = ['error', 'warn', 'info', 'debug', 'trace']
const channels = levels.map((level) => channel(`quorlock:${level}`))
const acquiring = tracingChannel('quorlock:acquire')

const log = new native.Log((records) => {
  for (const { level, target, name, text, time, fields } of JSON.parse(records)) {
    const record = { level: levels[level - 1], target, name, message: text, time: new Date(time * 1e3), ...fields }
    channels[level - 1].publish(record)
  }
})
let listening = 0

/** Whether the tracing channel of acquires has subscribers. */
const isObserved = () => acquiring.start.hasSubscribers || acquiring.asyncEnd.hasSubscribers

/**
 * Sets the core's log level to the least severe level whose channel has a subscriber. The core
 * skips less severe events.
 */
function listen() {
  let level = channels.length
  while (level > 0 && !channels[level - 1].hasSubscribers) level--
  if (level !== listening) log.listen((listening = level))
}

/** Abandons leases that were garbage-collected. A valid one is not released, because the work may still be running. */
const collected = new FinalizationRegistry((lease) => {
  if (!lease.abandon()) return
  const names = lease.resources.map((resource) => JSON.stringify(native.shortened(resource)))
  const warning = new Error(
    `a lease of ${names.join(', ')} (fence ${lease.fences().join(', ')}) was garbage-collected without being released: ` +
      `it is not extended any more, and its key stays until it expires, in ${Math.ceil(lease.remaining)} ms. ` +
      'Release each lease, or use `using`',
  )
  const [resource] = lease.resources
  const [fence] = lease.fences()
  Object.assign(warning, { name: 'QuorlockWarning', code: 'LEASE_DROPPED', resource, resources: lease.resources, fence })
  process.emitWarning(warning)
})

/**
 * Makes structuredClone and postMessage throw a DataCloneError that contains `advice`, instead of returning an empty
 * object. A symbol cannot be cloned, and the error shows its description. Node.js 20 has no markAsUncloneable, whose
 * error could not say what to do instead.
 */
function refuseCloning(object, advice) {
  Object.defineProperty(object, 'uncloneable', { value: Symbol(advice), enumerable: true })
}

/** Returns a frozen object with the value of each resource. */
function byResource(resources, values) {
  // Without a prototype, a resource may have any name, such as `__proto__`.
  const object = Object.create(null)
  for (const [index, resource] of resources.entries()) object[resource] = values[index]
  return Object.freeze(object)
}

let lastBlock = 0

/**
 * Returns what a `using` block with this lease needs if the lease is shared: an acquire in the block must not wait for it,
 * and the core rejects that, if it knows the number of the block. Undefined for other leases.
 */
function sharedBlock(client, lease) {
  if (lease.mode === 'exclusive') return undefined
  const block = { client, number: ++lastBlock }
  enterBlock(lease, block.number)
  return block
}

/** Returns the number of the innermost block that the caller is in and that has a valid lease of any of these resources. */
function blockWith(client, names) {
  const holds = (block) => block.client === client && block.lease.valid && block.lease.resources.some((own) => names.includes(own))
  return openBlocks().find(holds)?.number
}

/** Set by the class, because only it has access to the native lease. */
let enterBlock

class Lease {
  #native
  #signal
  #error

  static {
    enterBlock = (lease, number) => lease.#native.enterBlock(number)
  }

  constructor(lease) {
    this.#native = lease
    refuseCloning(this, 'a Lease works only in the thread that acquired it: to another thread, send its fence')
    collected.register(this, lease)
  }

  get resources() {
    return this.#native.resources
  }

  get resource() {
    return this.resources[0]
  }

  get token() {
    return this.#native.token
  }

  get holder() {
    return this.#native.holder
  }

  get fence() {
    return unwrap(this.#native.fence())
  }

  get fences() {
    return byResource(this.resources, this.#native.fences())
  }

  get slots() {
    return this.#native.slots
  }

  get slot() {
    return unwrap(this.#native.slot())
  }

  get mode() {
    return this.#native.mode
  }

  get modes() {
    return byResource(this.resources, this.#native.modes())
  }

  get ttl() {
    return this.#native.ttl
  }

  get valid() {
    return this.#native.valid
  }

  get remaining() {
    return this.#native.remaining
  }

  get signal() {
    return (this.#signal ??= this.#watch()).signal
  }

  check() {
    unwrap(this.#native.check())
  }

  heartbeat() {
    unwrap(this.#native.check())
  }

  async *heartbeats(items) {
    for await (const item of items) {
      this.heartbeat()
      yield item
    }
  }

  async extend(ttl) {
    const site = callSite()
    warnAboutUnit(ttl)
    unwrap(await resultOf(this.#native.extend(ttl)), site)
  }

  async downgrade() {
    const site = callSite()
    unwrap(await resultOf(this.#native.downgrade()), site)
  }

  tryUpgrade() {
    const site = callSite()
    const upgrade = async () => {
      const lease = unwrap(await resultOf(this.#native.tryUpgrade()), site)
      return lease && new Lease(lease)
    }
    return LeasePromise.of(upgrade(), 'tryUpgrade')
  }

  async detach(options) {
    const site = callSite()
    const { within } = optionsNamed(['within'], options)
    return unwrap(await resultOf(this.#native.detach(within)), site).take()
  }

  async handOver(successor, options) {
    const site = callSite()
    const { within } = optionsNamed(['within'], options)
    return unwrap(await resultOf(this.#native.handOver(successor, within)), site)
  }

  async release(options) {
    const { keep } = optionsNamed(['keep'], options)
    const released = unwrap(await resultOf(unwrap(this.#native.release(keep))))
    this.#end()
    return released
  }

  async [Symbol.asyncDispose]() {
    await this.release()
    unwrap(this.#native.loss())
  }

  [inspect.custom](_, options) {
    const { valid, remaining } = this
    const resources = this.resources.map((resource) => native.shortened(resource))
    const fences = Object.fromEntries(this.#native.fences().map((fence, index) => [resources[index], fence]))
    const names = resources.length === 1 ? { resource: resources[0], fence: this.fence } : { resources, fences }
    // The whole token is enough to release the lease.
    const token = `${this.token.slice(0, 8)}…`
    return `Lease ${inspect({ ...names, token, valid, remaining: Math.floor(remaining) }, options)}`
  }

  /** Returns the error of the loss, always the same object, or undefined if the lease was not lost. */
  #loss() {
    const loss = this.#error ? undefined : this.#native.loss()
    if (loss) this.#error = errorOf(loss)
    return this.#error
  }

  #watch() {
    // The core keeps this callback, and with it the lease and its signal, until the lease is lost or released.
    // Otherwise a signal to which only listeners were added could be garbage-collected, and would
    // never call them.
    this.#native.onLost(() => this.#end())
    return new LossSignal(() => this.#loss())
  }

  /**
   * Aborts the signal if the lease was lost. Called whenever a lease ends, including by a release,
   * because a release may detect that the lease was lost.
   */
  #end() {
    if (this.#signal && this.#loss()) this.#signal.abort()
  }
}

/**
 * Converts the property names of JSON from the core to camelCase. Names of commands and outcomes
 * contain no `_`, so they are unchanged.
 */
function camelCase(json) {
  if (Array.isArray(json)) return json.map(camelCase)
  if (json === null || typeof json !== 'object') return json
  const camel = (name) => name.replace(/_[a-z]/g, (letter) => letter[1].toUpperCase())
  return Object.fromEntries(Object.entries(json).map(([name, value]) => [camel(name), camelCase(value)]))
}

/** Converts the status of a resource from JSON of the core. */
function statusOf(json) {
  const { sinceMs, expiresInMs: remaining, readers, nodes, ...status } = camelCase(JSON.parse(json))
  const since = sinceMs === null ? null : new Date(sinceMs)
  const readerOf = ({ expiresInMs, ...reader }) => ({ ...reader, remaining: expiresInMs })
  const nodeOf = ({ expiresInMs, readers, ...node }) => ({ ...node, readers: readers.map(readerOf), remaining: expiresInMs })
  return { ...status, since, readers: readers.map(readerOf), remaining, nodes: nodes.map(nodeOf) }
}

/** Converts the status of a semaphore from JSON of the core. */
function semaphoreStatusOf(json) {
  const { holders, ...status } = camelCase(JSON.parse(json))
  return { ...status, holders: holders.map(({ expiresInMs, ...holder }) => ({ ...holder, remaining: expiresInMs })) }
}

class Diagnosis {
  #text

  constructor(text, json) {
    this.#text = text
    Object.assign(this, camelCase(JSON.parse(json)))
  }

  toString() {
    return this.#text
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
 * Calls `lead` with the lease of a leader, and releases the lease. Resolves to an object with the result, or to undefined
 * if the lease was lost meanwhile, so that the candidate must campaign again.
 */
async function underLease(lease, signal, lead) {
  const leading = signal ? leadingSignal(lease.signal, signal) : { signal: lease.signal, stop() {} }
  let result, failure
  try {
    leading.signal.throwIfAborted()
    result = await runWork(lease, () => lead(lease, leading.signal))
    checkResult(result, 'elect')
  } catch (error) {
    failure = { error }
  }
  leading.stop()
  await lease.release()
  const loss = lease.signal.aborted ? lease.signal.reason : undefined
  // Functions that take a signal reject with its reason, or with an error that has the reason as its cause.
  const ofLoss = (error) => error === loss || error?.cause === loss || error instanceof LeaseLostError || error?.name === 'AbortError'
  if (failure && !(loss && ofLoss(failure.error))) throw failure.error
  return loss ? undefined : { result }
}

/** Returns a signal that aborts when a lease is lost or the signal of the options aborts, until `stop` is called. */
function leadingSignal(lost, given) {
  const either = new LossSignal(() => (lost.aborted ? lost.reason : given.aborted ? given.reason : undefined))
  const stops = [lost, given].map((signal) => onAbort(signal, () => either.abort()))
  return { signal: either.signal, stop: () => stops.forEach((stop) => stop()) }
}

/** Returns a generator that yields each leader that a watch finds, until the signal aborts. */
function leaders(watch, signal) {
  let pending
  async function* found() {
    for (let fence = 0; ; ) {
      if (signal?.aborted) throw signal.reason
      pending = watch.after(fence)
      const result = await (signal ? resultUnlessAborted(pending, signal) : resultOf(pending))
      if (result === ENDED) return
      const [holder, text] = unwrap(result)
      fence = Number(text)
      yield { holder, fence }
    }
  }
  const generator = found()
  // A generator runs `return` and `throw` only after the pending `next`, which may wait forever, so they end it.
  for (const name of ['return', 'throw']) {
    const value = (given) => {
      finish(pending, ENDED)
      return Object.getPrototypeOf(generator)[name].call(generator, given)
    }
    Object.defineProperty(generator, name, { value, configurable: true, writable: true })
  }
  return generator
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
  return isObserved() ? acquiring.tracePromise(acquire, { client, resources }) : acquire()
}

/** Starts an operation with the options apart from the signal, and resolves to its result. */
function begin(options, start) {
  if (options === undefined) return resultOf(start())
  const { signal: given, ...rest } = optionsOf(options)
  const signal = signalOf(given)
  if (signal?.aborted) throw signal.reason
  const number = start(rest)
  return signal ? resultUnlessAborted(number, signal) : resultOf(number)
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
    const site = callSite()
    return semaphoreStatusOf(...unwrap(await resultOf(this.#native.status()), site))
  }

  [inspect.custom](_, options) {
    return `Semaphore ${inspect({ resource: native.shortened(this.resource), limit: this.limit }, options)}`
  }

  async #traced(names, options, start, site) {
    const given = options && optionsNamed(names, options)
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
    const site = callSite()
    const rest = optionsNamed(['mode'], options)
    return unwrap(await resultOf(this.#native.locked(namesOf(resources), rest)), site)
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
    const signal = signalOf(optionsOf(options).signal)
    checkWork(lead, 'elect', 'as the leader')
    const name = nameOf(resource)
    listen()
    for (;;) {
      const lease = new Lease(unwrap(await begin(options, (rest) => this.#native.elect(name, rest)), site))
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
    const site = callSite()
    return statusOf(...unwrap(await resultOf(this.#native.status(nameOf(resource))), site))
  }

  async forceRelease(resource) {
    const site = callSite()
    return unwrap(await resultOf(this.#native.forceRelease(nameOf(resource))), site)
  }

  stats() {
    return camelCase(JSON.parse(this.#native.stats()))
  }

  metrics() {
    return JSON.parse(this.#native.metrics())
  }

  async doctor() {
    const site = callSite()
    return new Diagnosis(...unwrap(await resultOf(this.#native.doctor()), site))
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
    const block = method === 'acquire' ? blockWith(this, names) : undefined
    return traced(this, names, options, (rest) => this.#native[method](names, rest, block), site)
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
