// Objects that work only in the thread that created them.

'use strict'

/**
 * Makes structuredClone and postMessage throw a DataCloneError that contains `advice`, instead of returning an empty
 * object. A symbol cannot be cloned, and the error shows its description. Node.js 20 has no markAsUncloneable, whose
 * error could not say what to do instead.
 */
function refuseCloning(object, advice) {
  Object.defineProperty(object, 'uncloneable', { value: Symbol(advice), enumerable: true })
}

module.exports = { refuseCloning }
