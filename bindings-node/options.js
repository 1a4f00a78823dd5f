// Checks what never reaches the core: whether arguments are options, functions, signals and clients at all.

import { ConfigError } from './errors.js'

/** A value in an error. Never the text of a string, which may be a secret. */
function shown(given) {
  if (given === null || given === undefined || typeof given === 'boolean') return String(given)
  if (typeof given === 'number') return String(given)
  if (typeof given === 'object') return Array.isArray(given) ? 'an array' : `an object of class ${className(given)}`
  return `a ${typeof given}`
}

const className = (object) => Object.getPrototypeOf(object)?.constructor?.name || 'Object'

/** Whether it is an object literal, of any realm. In others, such as a Map or a promise of options, no option would be found. */
function isPlain(given) {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) return false
  const prototype = Object.getPrototypeOf(given)
  return prototype === null || (Object.hasOwn(prototype, 'hasOwnProperty') && Object.getPrototypeOf(prototype) === null)
}

/** What a caller may have meant by something else than an object. */
function advice(given) {
  if (typeof given === 'number') return `; if it is the ttl in ms, write { ttl: ${given} }`
  if (typeof given === 'function') return '; `using` takes a function, as its last argument'
  if (isSignal(given)) return '; write { signal }'
  return ''
}

/** Returns the options, an empty object if they are undefined. Their names and values are for the core to check. */
export function optionsOf(given) {
  if (given === undefined) return {}
  if (isPlain(given)) return given
  throw new ConfigError(`options must be a plain object, such as { ttl: 10000 }, not ${shown(given)}${advice(given)}`)
}

/** Returns options that the core does not know, which can have these names. */
export function optionsNamed(names, given) {
  if (given === undefined) return {}
  if (!isPlain(given)) throw new ConfigError(`options must be a plain object, not ${shown(given)}`)
  const unknown = Object.keys(given).find((name) => !names.includes(name))
  if (unknown === undefined) return given
  throw new ConfigError(`${unknown} is not an option here; it can be ${names.join(', ')}`)
}

/** Returns a client, of any copy of this package. */
export function clientOf(given) {
  if (typeof given?.metrics === 'function' && typeof given.stats === 'function') return given
  throw new ConfigError(`a Client is needed, not ${shown(given)}`)
}

/** Also of another realm, and of a library that does without the global class. */
function isSignal(given) {
  return typeof given?.aborted === 'boolean' && typeof given.addEventListener === 'function'
}

/** Returns the signal, if there is one. */
export function signalOf(given) {
  if (given === undefined || given === null || isSignal(given)) return given
  throw new ConfigError(`signal must be an AbortSignal, not ${shown(given)}`)
}

/** Checks the function that `using` is to call. */
export function checkWork(given) {
  if (typeof given === 'function') return
  throw new ConfigError(`using needs a function to run under the lock, as its last argument, not ${shown(given)}`)
}

/** Checks what the function returned. The body of a generator runs only when it is iterated: without the lock. */
export function checkResult(result) {
  const kind = result?.[Symbol.toStringTag]
  if (kind !== 'Generator' && kind !== 'AsyncGenerator') return
  throw new ConfigError('the function given to `using` returned a generator, which would run after the lock is released; iterate it in the function')
}
