// Elections: the work of a leader, and the leaders that others watch.

'use strict'

const { LeaseLostError, unwrap } = require('./errors.js')
const { ENDED, finish, resultOf, resultUnlessAborted, runWork } = require('./operations.js')
const { checkResult } = require('./options.js')
const { LossSignal, onAbort, reasonOf } = require('./signals.js')

/**
 * Calls `lead` with the lease of a leader, and releases the lease. Resolves to an object with the result, or to undefined
 * if the lease was lost meanwhile, so that the candidate must campaign again.
 */
async function underLease(lease, signal, lead) {
  let leading, result, failure
  try {
    leading = signal ? leadingSignal(lease.signal, signal) : { signal: lease.signal, stop() {} }
    leading.signal.throwIfAborted()
    result = await runWork(lease, () => lead(lease, leading.signal))
    checkResult(result, 'elect')
  } catch (error) {
    failure = { error }
  }
  leading?.stop()
  await lease.release()
  const loss = lease.signal.aborted ? lease.signal.reason : undefined
  // Functions that take a signal reject with its reason, or with an error that has the reason as its cause.
  const ofLoss = (error) => error === loss || error?.cause === loss || error instanceof LeaseLostError || error?.name === 'AbortError'
  if (failure && !(loss && ofLoss(failure.error))) throw failure.error
  return loss ? undefined : { result }
}

/** Returns a signal that aborts when a lease is lost or the signal of the options aborts, until `stop` is called. */
function leadingSignal(lost, given) {
  const either = new LossSignal(() => (lost.aborted ? lost.reason : given.aborted ? reasonOf(given) : undefined))
  const stops = [lost, given].map((signal) => onAbort(signal, () => either.abort()))
  return { signal: either.signal, stop: () => stops.forEach((stop) => stop()) }
}

/** Returns a generator that yields each leader that a watch finds, until the signal aborts. */
function leaders(watch, signal) {
  let pending
  let ended = false
  async function* found() {
    for (let fence = 0; !ended; ) {
      if (signal?.aborted) throw reasonOf(signal)
      const start = () => (pending = watch.after(fence))
      const result = await (signal ? resultUnlessAborted(start, signal) : resultOf(start()))
      if (result === ENDED) return
      const [holder, text] = unwrap(result)
      fence = Number(text)
      yield { holder, fence }
    }
  }
  const generator = found()
  // A generator runs `return` and `throw` only after each pending `next`, which may wait forever, so they end these.
  for (const name of ['return', 'throw']) {
    const value = (given) => {
      ended = true
      finish(pending, ENDED)
      return Object.getPrototypeOf(generator)[name].call(generator, given)
    }
    Object.defineProperty(generator, name, { value, configurable: true, writable: true })
  }
  return generator
}

module.exports = { leaders, underLease }
