// Abort signals: those that end an acquire, and those that tell of a loss.

/** The calls that an acquire's signal is to make, and its one listener. */
const calls = new WeakMap()

/**
 * Calls back when the signal aborts; returns a function that takes this back. A signal has one listener for
 * all calls: Node.js warns of a leak at the eleventh, and one signal may end all acquires of a program.
 */
export function onAbort(signal, callback) {
  const { callbacks, listener } = calls.get(signal) ?? listen(signal)
  callbacks.add(callback)
  return () => {
    callbacks.delete(callback)
    if (callbacks.size > 0) return
    calls.delete(signal)
    signal.removeEventListener('abort', listener)
  }
}

function listen(signal) {
  const callbacks = new Set()
  const listener = () => {
    calls.delete(signal)
    for (const callback of callbacks) callback()
  }
  const entry = { callbacks, listener }
  calls.set(signal, entry)
  signal.addEventListener('abort', listener, { once: true })
  return entry
}

/**
 * The signal of a loss. `reason` returns the error of the loss once there is one; `abort` is to be called in a
 * turn of the event loop of its own.
 *
 * `aborted` must tell the truth at once, also while the event loop is held up. A signal that aborted in that
 * moment would not call a listener that is added after it, in the same turn. So until the event comes,
 * the signal looks at the lease, and only the event waits for its turn.
 */
export class LossSignal {
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
    // Node.js does not abort a signal that says it is aborted.
    for (const name of ['aborted', 'reason', 'throwIfAborted']) delete this.signal[name]
    this.#controller.abort(this.#reason())
  }
}
