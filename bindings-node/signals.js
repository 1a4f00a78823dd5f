// Abort signals: those that cancel an acquire, and those that report the loss of a lease.

'use strict'

/** Maps each signal that was given to an acquire to its callbacks and its only listener. */
const entries = new WeakMap()

/**
 * Calls `callback` when the signal aborts; returns a function that unregisters it. All callbacks of a signal share
 * one listener: Node.js warns of a leak at the eleventh, and a program may use one signal for all its acquires.
 */
function onAbort(signal, callback) {
  const { callbacks, listener } = entries.get(signal) ?? listen(signal)
  callbacks.add(callback)
  return () => {
    callbacks.delete(callback)
    if (callbacks.size > 0) return
    entries.delete(signal)
    try {
      signal.removeEventListener('abort', listener)
    } catch {
      // A signal of another library may throw. Its listener has no callbacks any more, so it does nothing.
    }
  }
}

function listen(signal) {
  const callbacks = new Set()
  const listener = () => {
    entries.delete(signal)
    for (const callback of callbacks) callback()
  }
  const entry = { callbacks, listener }
  signal.addEventListener('abort', listener, { once: true })
  entries.set(signal, entry)
  return entry
}

/** The reasons of signals of old libraries, which have none of their own. */
const reasons = new WeakMap()

/** Returns the reason of a signal that has aborted, always the same. */
function reasonOf(signal) {
  try {
    if (signal.reason !== undefined) return signal.reason
  } catch {
    // A signal of another library may throw: it has no reason then.
  }
  if (!reasons.has(signal)) reasons.set(signal, new DOMException('This operation was aborted', 'AbortError'))
  return reasons.get(signal)
}

/**
 * A signal that reports the loss of a lease. `reason` returns the error of the loss once the lease is lost. `abort`
 * dispatches the event, and must be called in a separate turn of the event loop.
 *
 * `aborted` must be correct immediately, even while the event loop is blocked. But if the signal really aborted at that
 * moment, a listener added later in the same turn would never be called. So until `abort` is called, the properties
 * of the signal read the state of the lease, and the event itself follows in a later turn.
 */
class LossSignal {
  #controller = new AbortController()
  #reason

  constructor(reason) {
    this.#reason = reason
    const throwIfAborted = () => {
      const error = reason()
      if (error) throw error
    }
    Object.defineProperties(this.signal, {
      aborted: { get: () => reason() !== undefined, configurable: true },
      reason: { get: reason, configurable: true },
      throwIfAborted: { value: throwIfAborted, configurable: true },
    })
  }

  get signal() {
    return this.#controller.signal
  }

  abort() {
    // Node.js does not abort a signal whose `aborted` is already true.
    for (const name of ['aborted', 'reason', 'throwIfAborted']) delete this.signal[name]
    this.#controller.abort(this.#reason())
  }
}

module.exports = { LossSignal, onAbort, reasonOf }
