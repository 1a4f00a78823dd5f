// Converts JSON from the core: status, statistics and the diagnosis of the doctor.

'use strict'

/**
 * Converts the property names of JSON from the core to camelCase. Names of commands and outcomes
 * contain no `_`, so they are unchanged.
 */
function camelCase(json) {
  if (Array.isArray(json)) return json.map(camelCase)
  if (json === null || typeof json !== 'object') return json
  const camel = (name) => name.replace(/_[a-z]/g, (letter) => letter[1].toUpperCase())
  return Object.fromEntries(Object.entries(json).map(([name, value]) => [camel(name), camelCase(value)]))
}

/** Converts the status of a resource from JSON of the core. */
function statusOf(json) {
  const { sinceMs, expiresInMs: remaining, readers, nodes, ...status } = camelCase(JSON.parse(json))
  const since = sinceMs === null ? null : new Date(sinceMs)
  const readerOf = ({ expiresInMs, ...reader }) => ({ ...reader, remaining: expiresInMs })
  const nodeOf = ({ expiresInMs, readers, ...node }) => ({ ...node, readers: readers.map(readerOf), remaining: expiresInMs })
  return { ...status, since, readers: readers.map(readerOf), remaining, nodes: nodes.map(nodeOf) }
}

/** Converts the status of a semaphore from JSON of the core. */
function semaphoreStatusOf(json) {
  const { holders, ...status } = camelCase(JSON.parse(json))
  return { ...status, holders: holders.map(({ expiresInMs, ...holder }) => ({ ...holder, remaining: expiresInMs })) }
}

class Diagnosis {
  #text

  constructor(text, json) {
    this.#text = text
    Object.assign(this, camelCase(JSON.parse(json)))
  }

  toString() {
    return this.#text
  }
}

module.exports = { Diagnosis, camelCase, semaphoreStatusOf, statusOf }
