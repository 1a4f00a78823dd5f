// Checks the types of arguments before they reach the core: strings, plain objects, functions, signals and clients. The
// core checks the names and values of options.

'use strict'

const { ConfigError, errorOf } = require('./errors.js')
const { shown, unitWarning, wrongResource } = require('#native')

/** Returns the resources, given as a string or an array of strings, as an array. Throws ConfigError for others. */
function namesOf(given) {
  if (Array.isArray(given)) return Array.from(given, (name, position) => nameOf(name, 'a string', position))
  return [nameOf(given, 'a string or an array of strings')]
}

/** Returns a resource. Strings with lone surrogates are refused: a replacement would make different strings equal. */
function nameOf(given, accepted = 'a string', position) {
  if (typeof given === 'string' && given.isWellFormed()) return given
  throw errorOf(wrongResource(position, accepted, given))
}

/** Returns the nodes with each URL object as a string. The core refuses anything else that is not a string. */
function nodesOf(given) {
  return Array.isArray(given) ? Array.from(given, (node) => (node instanceof URL ? node.href : node)) : given
}

/** Emits a warning, once in each process, if the ttl was probably meant in seconds. */
function warnAboutUnit(ttl) {
  if (ttl === undefined) return
  const warning = unitWarning(ttl)
  if (warning) process.emitWarning(warning, 'QuorlockWarning', 'TTL_UNIT')
}

/**
 * Whether the value is a plain object, of any realm. Other objects, such as a Map or a promise,
 * have no options as properties.
 */
function isPlain(given) {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) return false
  const prototype = Object.getPrototypeOf(given)
  return prototype === null || (Object.hasOwn(prototype, 'hasOwnProperty') && Object.getPrototypeOf(prototype) === null)
}

/** Suggests what the caller may have meant by an argument that is not an object. `first` is the most frequent option. */
function advice(given, first) {
  if (typeof given === 'number') return `; if it is the ${first === 'ttl' ? 'ttl in ms' : first}, write { ${first}: ${given} }`
  if (typeof given === 'function') return '; `using` takes a function, as its last argument'
  if (typeof given === 'string') return '; several resources, or nodes, are one array: the first argument'
  if (isSignal(given)) return '; write { signal }'
  return ''
}

/** Returns a copy of options. It has no prototype, because the properties of `Object.prototype` are no options. */
const copied = (given) => ({ __proto__: null, ...given })

/** Returns the options, or an empty object if they are undefined. The core checks their names and values. */
function optionsOf(given, first = 'ttl', example = 10_000) {
  if (given === undefined) return copied()
  if (isPlain(given)) {
    const options = copied(given)
    warnAboutUnit(options.ttl)
    return options
  }
  throw new ConfigError(`options must be a plain object, such as { ${first}: ${example} }, not ${shown(given)}${advice(given, first)}`)
}

/**
 * Returns options that are not passed to the core. Throws ConfigError for a name that is not in
 * `names`.
 */
function optionsNamed(names, given) {
  if (given === undefined) return copied()
  if (!isPlain(given)) throw new ConfigError(`options must be a plain object, not ${shown(given)}`)
  const options = copied(given)
  const unknown = Object.keys(options).find((name) => !names.includes(name))
  if (unknown === undefined) return options
  throw new ConfigError(`${unknown} is not an option here; it can be ${names.join(', ')}`)
}

/** Whether the value is a client, perhaps of another copy of this package. */
const isClient = (given) => typeof given?.metrics === 'function' && typeof given.stats === 'function'

/** Returns the client. Throws ConfigError for anything else. */
function clientOf(given) {
  if (isClient(given)) return given
  throw new ConfigError(`a Client is needed, not ${shown(given)}`)
}

/**
 * Whether the value is an AbortSignal. Accepts signals of another realm, and of libraries with a
 * class of their own.
 */
function isSignal(given) {
  const isFunction = (name) => typeof given[name] === 'function'
  return typeof given?.aborted === 'boolean' && isFunction('addEventListener') && isFunction('removeEventListener')
}

/** Returns the signal, or undefined or null if none is given. Throws ConfigError for anything else. */
function signalOf(given) {
  if (given === undefined || given === null || isSignal(given)) return given
  const advice = isSignal(given.signal) ? '; write { signal: controller.signal }' : ''
  throw new ConfigError(`signal must be an AbortSignal, not ${shown(given)}${advice}`)
}

/** Checks that the options of `tryLock` do not include `wait`. */
function checkNoWait({ wait }) {
  if (wait === undefined) return
  throw new ConfigError('wait is not an option of tryLock, which never waits; use lock to wait')
}

/** Checks that the last argument of `using` or `elect` is a function. */
function checkWork(given, method = 'using', when = 'under the lock') {
  if (typeof given === 'function') return
  throw new ConfigError(`${method} needs a function to run ${when}, as its last argument, not ${shown(given)}`)
}

/**
 * Whether the value is a generator, or another iterator that may run code of the program when it is iterated, such as a
 * generator that a compiler has made for an older version of JavaScript. The iterators of arrays and maps run no such code.
 */
function isLazy(given) {
  if (typeof given?.next !== 'function') return false
  const tag = given[Symbol.toStringTag]
  if (typeof tag === 'string' && tag.endsWith(' Iterator')) return false
  return typeof given[Symbol.iterator] === 'function' || typeof given[Symbol.asyncIterator] === 'function'
}

/**
 * Rejects a generator, another iterator or an RxJS observable as the result of `using` or `elect`. Its code would run later,
 * after the lock is released.
 */
function checkResult(result, method = 'using') {
  const refuse = (lazy, advice) => {
    throw new ConfigError(`the function given to \`${method}\` returned ${lazy}, which would run after the lock is released; ${advice} in the function`)
  }
  if (isLazy(result)) refuse('a generator or another iterator', 'iterate it')
  if (typeof result?.lift === 'function' && typeof result.subscribe === 'function') refuse('an observable', 'await lastValueFrom(…)')
}

module.exports = { checkNoWait, checkResult, checkWork, clientOf, isClient, nameOf, namesOf, nodesOf, optionsNamed, optionsOf, signalOf, warnAboutUnit }
