// The promises of leases, which warn if nobody awaits them.

'use strict'

/**
 * The promise of a lease. If it is fulfilled and nobody has called `then`, as `await` does, it warns: the code after the call
 * runs whether or not the lock is held, such as the body of `if (client.tryLock('r'))`. Node.js reports a rejection then.
 */
class LeasePromise extends Promise {
  #awaited = false

  // What `then`, `catch` and `finally` return are ordinary promises.
  static get [Symbol.species]() {
    return Promise
  }

  /** Follows a promise. `call` is the call that returned it, for the warning. */
  static of(promise, call) {
    const lease = new LeasePromise((resolve, reject) => {
      const fulfil = (value) => {
        resolve(value)
        // As for rejections, it is early enough to await it in the same turn of the event loop.
        if (!lease.#awaited) setImmediate(() => lease.#check(call))
      }
      promise.then(fulfil, reject)
    })
    return lease
  }

  then(...callbacks) {
    this.#awaited = true
    return super.then(...callbacks)
  }

  #check(call) {
    if (this.#awaited) return
    const text = `nobody awaits the lease of \`${call}\`, so the code after this call runs whether or not the lock is held; write \`await\`, or use \`using\``
    process.emitWarning(text, 'QuorlockWarning', 'LEASE_NOT_AWAITED')
  }
}

module.exports = { LeasePromise }
