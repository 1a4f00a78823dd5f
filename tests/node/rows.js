// Reads the rows of tests/vectors, converts their options, and checks the errors that they expect.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { inspect } from 'node:util'
import * as quorlock from 'quorlock'

/** Returns the content of a file of vectors. */
export const load = (name) => JSON.parse(readFileSync(new URL(`../vectors/${name}.json`, import.meta.url)))
/** Converts a name from snake_case to camelCase. */
export const camel = (name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase())
const errors = Object.fromEntries(load('errors').map((row) => [row.code, quorlock[row.class]]))

/** Converts a value of the vectors. Numbers that JSON cannot express are written { "number": "NaN" }. */
const jsValue = (value) => (value?.number === undefined ? value : Number(value.number))
/** Converts options of the vectors to those of the JavaScript API. */
export const jsOptions = (options = {}) =>
  Object.fromEntries(Object.entries(options).map(([name, value]) => [camel(name), jsValue(value)]))

/**
 * Runs the action and returns its result. If the row expects an error, checks its class, code,
 * texts and outcomes instead.
 */
export async function expectOutcome(expected, action) {
  if (expected.error == null) return await action()
  const error = await (async () => action())().then(() => assert.fail('no error'), (error) => error)
  assert(error instanceof errors[expected.error], inspect(error))
  assert(error instanceof quorlock.QuorlockError)
  assert.equal(error.code, expected.error)
  const reports = error.nodes.map(({ address, outcome, detail }) => `${address}: ${outcome} (${detail})`)
  const shown = [error.message, ...reports].join('; ')
  // Web frameworks send the message to their clients.
  for (const { address } of error.nodes) assert(!error.message.includes(address), error.message)
  for (const part of expected.contains ?? []) {
    const text = part.replace('{name}', camel(expected.option ?? ''))
    assert(shown.includes(text), `${shown} lacks ${text}`)
  }
  for (const secret of expected.never ?? []) assert(!inspect(error).includes(secret))
  if (expected.holder !== undefined) assert.equal(error.holder ?? null, expected.holder)
  if (expected.reason !== undefined) assert.equal(error.reason ?? null, expected.reason)
  if (expected.about) {
    assert.deepEqual(error.resources, expected.about)
    assert.equal(error.resource, expected.about[0])
  }
  if (expected.outcomes) {
    assert.equal(error.nodes.length, expected.outcomes.length)
    for (const [index, outcome] of expected.outcomes.entries()) {
      if (outcome !== null) assert.equal(error.nodes[index].outcome, outcome, error.message)
    }
  }
}
