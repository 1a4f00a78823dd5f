// The class Lease, and which blocks of `using` and `elect` hold shared leases.

'use strict'

const native = require('#native')
const { inspect } = require('node:util')
const { refuseCloning } = require('./cloning.js')
const { errorOf, unwrap } = require('./errors.js')
const { openBlocks } = require('./holding.js')
const { resultOf, valueOf } = require('./operations.js')
const { optionsNamed, warnAboutUnit } = require('./options.js')
const { LeasePromise } = require('./promises.js')
const { LossSignal } = require('./signals.js')

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

/** Returns the numbers of the blocks that the caller is in and that have a shared lease of this client. */
const blocksOf = (client) =>
  openBlocks()
    .filter((block) => block.client === client)
    .map((block) => block.number)

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
    warnAboutUnit(ttl)
    await valueOf(this.#native.extend(ttl))
  }

  async downgrade() {
    await valueOf(this.#native.downgrade())
  }

  tryUpgrade() {
    const upgraded = valueOf(this.#native.tryUpgrade()).then((lease) => lease && new Lease(lease))
    return LeasePromise.of(upgraded, 'tryUpgrade')
  }

  async detach(options) {
    const { within } = optionsNamed(['within'], options)
    return (await valueOf(this.#native.detach(within))).take()
  }

  async handOver(successor, options) {
    const { within } = optionsNamed(['within'], options)
    return valueOf(this.#native.handOver(successor, within))
  }

  async release(options) {
    const { keep } = optionsNamed(['keep'], options)
    const released = unwrap(await resultOf(unwrap(this.#native.release(keep))))
    this.#end()
    return released
  }

  async [Symbol.asyncDispose]() {
    await this.release()
    const loss = this.#loss()
    if (loss) throw loss
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

module.exports = { Lease, blocksOf, sharedBlock }
