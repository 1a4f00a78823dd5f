// Operations of the addon, as promises. The process stays alive while an operation is under way.

'use strict'

// First, because in some bundles no other `require` works, and the error that this one throws tells what to do.
const native = require('#native')
const { setImmediate, setInterval } = require('node:timers')
const { callSite, unwrap } = require('./errors.js')
const { runHolding } = require('./holding.js')
const { optionsOf, signalOf } = require('./options.js')
const { onAbort, reasonOf } = require('./signals.js')

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
 * Resolves to the value of an operation, or throws its failure as an error, whose stack begins at the caller of the function
 * that called this one.
 */
async function valueOf(number, site = callSite(valueOf)) {
  return unwrap(await resultOf(number), site)
}

/**
 * Starts an operation, and resolves with its result. If the signal aborts first, cancels the operation and rejects with the
 * signal's reason.
 */
function resultUnlessAborted(start, signal) {
  let stop
  const result = new Promise((resolve, reject) => {
    let number
    const abort = () => {
      reject(reasonOf(signal))
      if (number === undefined) return
      mailbox.cancel(number)
      take(number)
    }
    // Before the start: a signal of another library may throw.
    stop = onAbort(signal, abort)
    number = start()
    expect(number, resolve)
  })
  // Not in the mailbox's callback: a signal of another library may call back, and end another operation of the batch.
  return result.finally(() => stop?.())
}

/** Cancels an operation, and resolves with `result` instead. Does nothing if it is not under way any more. */
function finish(number, result) {
  if (!underWay.has(number)) return
  mailbox.cancel(number)
  take(number)(result)
}

/** The result of an operation that was ended because the caller does not want it any more. */
const ENDED = Symbol('ended')

/** Starts an operation with the options apart from the signal, and resolves to its result. */
function begin(options, start) {
  if (options === undefined) return resultOf(start())
  const { signal: given, ...rest } = optionsOf(options)
  const signal = signalOf(given)
  if (signal?.aborted) throw reasonOf(signal)
  return signal ? resultUnlessAborted(() => start(rest), signal) : resultOf(start(rest))
}

module.exports = { ENDED, begin, finish, mailbox, resultOf, resultUnlessAborted, runWork, valueOf }
