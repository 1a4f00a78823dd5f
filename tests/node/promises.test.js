// What the asynchronous methods return: promises of the language, so callers can use `then`, `catch` and `finally`.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isPromise } from 'node:util/types'
import { Client } from 'quorlock'

test('every asynchronous method returns a promise with then, catch and finally', async () => {
  const client = new Client(['memory://a', 'memory://b', 'memory://c'])
  const lease = await client.lock('r')
  const calls = {
    lock: () => client.lock('left'),
    'lock that fails': () => client.lock('r', { wait: 0 }),
    'lock with a wrong name': () => client.lock(''),
    using: () => client.using('other', () => 42),
    'using that fails': () => client.using('other'),
    locked: () => client.locked('r'),
    doctor: () => client.doctor(),
    extend: () => lease.extend(),
    release: () => lease.release(),
    'lease dispose': () => lease[Symbol.asyncDispose](),
    close: () => client.close(),
    'client dispose': () => client[Symbol.asyncDispose](),
  }
  for (const [name, call] of Object.entries(calls)) {
    const promise = call()
    assert(isPromise(promise) && promise instanceof Promise, name)
    let count = 0
    const settled = () => count++
    await Promise.all([promise.catch(() => {}).finally(settled), promise.finally(settled).then(settled, settled)])
    assert.equal(count, 3, name)
  }
})
