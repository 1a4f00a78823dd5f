// The promises of leases, which warn if nobody awaits them.

'use strict'

// Not the globals, which a test framework may replace with fake ones.
const { clearTimeout, setTimeout } = require('node:timers')

/** A program may do something else first, and await the lease then. */
const PATIENCE_MS = 1_000

/**
 * The promise of a lease. If nobody calls `then`, as `await` does, soon after it is fulfilled, it warns: the code after the
 * call runs whether or not the lock is held, such as the body of `if (client.tryLock('r'))`. Node.js reports a rejection then.
 */
class LeasePromise extends Promise {
  #awaited = false
  #timer

  // What `then`, `catch` and `finally` return are ordinary promises.
  static get [Symbol.species]() {
    return Promise
  }

  /** Follows a promise. `call` is the call that returned it, for the warning. */
  static of(promise, call) {
    const lease = new LeasePromise((resolve, reject) => {
      const fulfil = (value) => {
        resolve(value)
        if (!lease.#awaited) lease.#timer = setTimeout(warn, PATIENCE_MS, call)
      }
      promise.then(fulfil, reject)
    })
    return lease
  }

  then(...callbacks) {
    this.#awaited = true
    clearTimeout(this.#timer)
    return super.then(...callbacks)
  }
}

function warn(call) {
  const text = `nobody awaits the lease of \`${call}\`, so the code after this call runs whether or not the lock is held; write \`await\`, or use \`using\``
  process.emitWarning(text, 'QuorlockWarning', 'LEASE_NOT_AWAITED')
}

module.exports = { LeasePromise }
