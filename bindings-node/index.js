// The JavaScript form of the lock: promises, errors, signals. The native part is bindings-node/src.

import { channel, tracingChannel } from 'node:diagnostics_channel'
import { setInterval } from 'node:timers'
import { isMainThread } from 'node:worker_threads'
import native from './native.js'

export class QuorlockError extends Error {
  constructor(message = '', { resources = [], nodes = [] } = {}) {
    super(message)
    this.resources = resources
    this.nodes = nodes
  }

  get resource() {
    return this.resources[0]
  }
}

// Shared by all instances, as the name of an error is.
function describe(kind, name, code) {
  Object.defineProperty(kind.prototype, 'name', { value: name, configurable: true, writable: true })
  Object.defineProperty(kind.prototype, 'code', { value: code, configurable: true, writable: true })
}

export class ConfigError extends QuorlockError {}
export class LockTimeoutError extends QuorlockError {}
export class QuorumError extends QuorlockError {}
export class LeaseLostError extends QuorlockError {}
export class ClosedError extends QuorlockError {}

describe(QuorlockError, 'QuorlockError', 'QUORLOCK')
describe(ConfigError, 'ConfigError', 'CONFIG')
describe(LockTimeoutError, 'LockTimeoutError', 'TIMEOUT')
describe(QuorumError, 'QuorumError', 'NO_QUORUM')
describe(LeaseLostError, 'LeaseLostError', 'LEASE_LOST')
describe(ClosedError, 'ClosedError', 'CLOSED')

const classes = { ConfigError, LockTimeoutError, QuorumError, LeaseLostError, ClosedError }

const errorOf = (failure) => new classes[failure.class](failure.message, failure)

/** Returns a result of the core; throws if it is a failure, from here, for the caller's stack. */
function unwrap(result) {
  if (result?.code === undefined) return result
  throw errorOf(result)
}

/** What is to be called with the results of the operations under way, by their numbers. */
const underWay = new Map()

/** Keeps the event loop alive while operations are under way, which the mailbox does not. */
const alive = setInterval(() => {}, 2 ** 31 - 1).unref()

const mailbox = new native.Mailbox((numbers, results) => {
  for (let index = 0; index < numbers.length; index++) take(numbers[index])(results[index])
})

function expect(number, then) {
  if (underWay.size === 0) alive.ref()
  underWay.set(number, then)
}

function take(number) {
  const then = underWay.get(number)
  underWay.delete(number)
  if (underWay.size === 0) alive.unref()
  return then
}

/** The result of an operation of the core. */
const resultOf = (number) => new Promise((resolve) => expect(number, resolve))

/** The result of an operation of the core, unless the signal aborts it. */
function resultUnlessAborted(number, signal) {
  return new Promise((resolve, reject) => {
    const abort = () => {
      mailbox.cancel(number)
      take(number)
      reject(signal.reason)
    }
    signal.addEventListener('abort', abort, { once: true })
    expect(number, (result) => {
      signal.removeEventListener('abort', abort)
      resolve(result)
    })
  })
}

/** What is told, from the least to the most: a channel for each level. */
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

/** Whether somebody traces acquires. */
const isObserved = () => acquiring.start.hasSubscribers || acquiring.asyncEnd.hasSubscribers

/** Hears of as much as somebody subscribes to. So nothing is told where nobody does. */
function listen() {
  let level = channels.length
  while (level > 0 && !channels[level - 1].hasSubscribers) level--
  if (level !== listening) log.listen((listening = level))
}

/** Whoever has the signal of a lease keeps the lease. */
const leases = new WeakMap()

export class Lease {
  #native
  #controller

  constructor(lease) {
    this.#native = lease
  }

  get resources() {
    return this.#native.resources
  }

  get token() {
    return this.#native.token
  }

  get fence() {
    return unwrap(this.#native.fence())
  }

  get fences() {
    // Without a prototype a resource may have any name, such as `__proto__`.
    const fences = Object.create(null)
    const numbers = this.#native.fences()
    for (const [index, resource] of this.resources.entries()) fences[resource] = numbers[index]
    return Object.freeze(fences)
  }

  get valid() {
    return this.#native.valid
  }

  get remaining() {
    return this.#native.remaining
  }

  get signal() {
    const isNew = !this.#controller
    const controller = (this.#controller ??= new AbortController())
    // Also when the event loop was held up for so long that the call below is still to come.
    const loss = this.#native.loss()
    if (loss) {
      controller.abort(errorOf(loss))
    } else if (isNew) {
      leases.set(controller.signal, this)
      // Weak: a lease that nobody refers to is released.
      const weak = new WeakRef(controller)
      this.#native.onLost((loss) => weak.deref()?.abort(errorOf(loss)))
    }
    return controller.signal
  }

  check() {
    unwrap(this.#native.check())
  }

  async extend(ttl) {
    unwrap(await resultOf(this.#native.extend(ttl)))
  }

  async release() {
    return unwrap(await resultOf(this.#native.release()))
  }

  async [Symbol.asyncDispose]() {
    await this.release()
    unwrap(this.#native.loss())
  }
}

/** The names of the core's JSON as JavaScript writes them. Those of commands and outcomes stay. */
function camelCase(told) {
  if (Array.isArray(told)) return told.map(camelCase)
  if (told === null || typeof told !== 'object') return told
  const camel = (name) => name.replace(/_[a-z]/g, (letter) => letter[1].toUpperCase())
  return Object.fromEntries(Object.entries(told).map(([name, value]) => [camel(name), camelCase(value)]))
}

export class Diagnosis {
  #text

  constructor(text, json) {
    this.#text = text
    Object.assign(this, camelCase(JSON.parse(json)))
  }

  toString() {
    return this.#text
  }
}

/** Others need not wait then for what is still held to expire. In ms, for all leases together. */
const releaseAll = () => native.releaseAll(500)

// What is no proper string gets the same error as an empty one.
const nameOf = (resource) => (typeof resource === 'string' && resource.isWellFormed() ? resource : '')
const namesOf = (resources) => (Array.isArray(resources) ? Array.from(resources, nameOf) : [nameOf(resources)])

export class Client {
  #native

  constructor(nodes, options) {
    listen()
    this.#native = unwrap(mailbox.open(nodes, options ?? {}))
    // The leases of a worker thread are released when its objects are finalized.
    if (isMainThread && !process.listeners('exit').includes(releaseAll)) process.on('exit', releaseAll)
  }

  async lock(resources, options) {
    if (!isObserved()) return this.#lock(resources, options)
    const context = { client: this, resources: namesOf(resources) }
    return acquiring.tracePromise(() => this.#lock(resources, options), context)
  }

  async using(resources, options, work) {
    if (work === undefined) [options, work] = [undefined, options]
    if (typeof work !== 'function') throw new TypeError('using needs a function that does the work')
    const lease = await this.lock(resources, options)
    let result
    try {
      result = await work(lease)
    } catch (error) {
      // Never an error, so it takes the place of none.
      await lease.release()
      throw error
    }
    await lease[Symbol.asyncDispose]()
    return result
  }

  async locked(resources) {
    return unwrap(await resultOf(this.#native.locked(namesOf(resources))))
  }

  stats() {
    return camelCase(JSON.parse(this.#native.stats()))
  }

  metrics() {
    return JSON.parse(this.#native.metrics())
  }

  async doctor() {
    return new Diagnosis(...unwrap(await resultOf(this.#native.doctor())))
  }

  async close() {
    unwrap(await resultOf(this.#native.close()))
  }

  async [Symbol.asyncDispose]() {
    await this.close()
  }

  [Symbol.for('nodejs.util.inspect.custom')]() {
    return `Client { ${this.#native.addresses.join(', ')} }`
  }

  async #lock(resources, options) {
    return new Lease(unwrap(await this.#acquire(resources, options)))
  }

  #acquire(resources, options) {
    listen()
    const names = namesOf(resources)
    if (!options) return resultOf(this.#native.acquire(names))
    const { signal, ...rest } = options
    signal?.throwIfAborted()
    const number = this.#native.acquire(names, rest)
    return signal ? resultUnlessAborted(number, signal) : resultOf(number)
  }
}
