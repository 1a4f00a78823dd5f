// The error classes, and how a failure of the core becomes an error.

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

export const errorOf = (failure) => new classes[failure.class](failure.message, failure)

/** How many stacks may be captured now: a burst of 100, and another one in each millisecond. */
let budget = 100
let counted = 0

/**
 * The stack of a call, for the error that its operation may end with: by then the caller has left the
 * stack. Capturing it costs as much as a tenth of a lock, so a program that locks all the time is spared most
 * of that. Without it a stack shows callers that await the promise, which V8 finds, but no others.
 */
export function callSite() {
  const now = performance.now()
  budget = Math.min(100, budget + Math.max(0, now - counted))
  counted = now
  if (budget < 1) return undefined
  budget--
  const site = {}
  Error.captureStackTrace(site, callSite)
  return site
}

/** Returns a result of the core; throws if it is a failure, with the stack of the call if there is one. */
export function unwrap(result, site) {
  if (result?.code === undefined) return result
  const error = errorOf(result)
  // Not a string if the program formats stacks itself.
  if (typeof site?.stack === 'string') {
    const frames = site.stack.indexOf('\n')
    if (frames >= 0) error.stack = `${error}${site.stack.slice(frames)}`
  }
  throw error
}
