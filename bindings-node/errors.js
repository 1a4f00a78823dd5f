// The error classes, and the conversion of a failure object from the addon to an error with the caller's stack.

'use strict'

class QuorlockError extends Error {
  constructor(message = '', details = {}) {
    super(message, details)
    const { resources = [], nodes = [] } = details
    // Loggers and JSON.stringify show only own, enumerable properties.
    Object.defineProperty(this, 'message', { enumerable: true })
    Object.assign(this, { name: this.name, code: this.code, resources, nodes })
  }

  get resource() {
    return this.resources[0]
  }
}

// Sets the `name` and `code` that the constructor copies to each error. The name is not taken from the class, which a
// bundler may rename.
function describe(kind, name, code) {
  Object.defineProperty(kind.prototype, 'name', { value: name, configurable: true, writable: true })
  Object.defineProperty(kind.prototype, 'code', { value: code, configurable: true, writable: true })
}

class ConfigError extends QuorlockError {}
class LockTimeoutError extends QuorlockError {
  constructor(message, details) {
    super(message, details)
    if (details?.holder !== undefined) this.holder = details.holder
  }
}
class QuorumError extends QuorlockError {}
class LeaseLostError extends QuorlockError {
  constructor(message, details) {
    super(message, details)
    if (details?.reason !== undefined) this.reason = details.reason
  }
}
class ClosedError extends QuorlockError {}

describe(QuorlockError, 'QuorlockError', 'QUORLOCK')
describe(ConfigError, 'ConfigError', 'CONFIG')
describe(LockTimeoutError, 'LockTimeoutError', 'TIMEOUT')
describe(QuorumError, 'QuorumError', 'NO_QUORUM')
describe(LeaseLostError, 'LeaseLostError', 'LEASE_LOST')
describe(ClosedError, 'ClosedError', 'CLOSED')

const classes = { ConfigError, LockTimeoutError, QuorumError, LeaseLostError, ClosedError }

/** Whether the value is an error of a client, perhaps of another copy of this package. */
const isOwn = (error) => error instanceof Error && Object.hasOwn(classes, error.name) && Array.isArray(error.nodes)

const errorOf = (failure) => new classes[failure.class](failure.message, failure)

/** The number of stacks that may be captured now: up to 100, refilled at one per millisecond. */
let budget = 100
let counted = 0

/**
 * Captures the stack above a function, in a call that starts an operation. If the operation fails later, its error
 * gets this stack, because the caller is no longer on the stack then. Returns undefined if the
 * budget is used up: capturing costs about a tenth of an acquire and release. The stack of the
 * error then shows only callers that await the promise, because V8 finds these itself.
 */
function callSite(above = callSite) {
  const now = performance.now()
  budget = Math.min(100, budget + Math.max(0, now - counted))
  counted = now
  if (budget < 1) return undefined
  budget--
  const site = {}
  Error.captureStackTrace(site, above)
  return site
}

/**
 * Returns the result of an operation. If the result is a failure, throws it as an error, with the
 * stack of `site` if it is given.
 */
function unwrap(result, site) {
  const isFailure = typeof result === 'object' && result !== null && Object.hasOwn(result, 'code')
  if (!isFailure) return result
  const error = errorOf(result)
  // `stack` is not a string if the program has set Error.prepareStackTrace.
  if (typeof site?.stack === 'string') {
    const frames = site.stack.indexOf('\n')
    if (frames >= 0) error.stack = `${error}${site.stack.slice(frames)}`
  }
  throw error
}

module.exports = {
  ClosedError,
  ConfigError,
  LeaseLostError,
  LockTimeoutError,
  QuorlockError,
  QuorumError,
  callSite,
  errorOf,
  isOwn,
  unwrap,
}
