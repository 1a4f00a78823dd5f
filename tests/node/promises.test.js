// What the asynchronous methods return: promises of the language, so callers can use `then`, `catch` and `finally`.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { test } from 'node:test'
import { promisify } from 'node:util'
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

test('a lease that nobody awaits causes a warning that is shown by default', async () => {
  const program = `
    import { Client, Semaphore } from 'quorlock'
    const client = new Client(['memory://not-awaited'])
    const seen = []
    process.on('warning', ({ name, code, message }) => seen.push([name, code, message.match(/\`(\\w+)\`/)[1]].join(' ')))
    const until = async (count) => { while (seen.length < count) await new Promise(setImmediate) }
    const semaphore = client.semaphore('s', { limit: 2 })
    const shared = await client.lock('shared', { mode: 'shared' })
    const text = await (await client.lock('moved')).detach()
    // Awaited, in any way and not at once.
    const leases = [client.lock('a'), client.lock('b')]
    await Promise.all(leases)
    client.lock('c').then(() => {})
    client.lock('d').catch(() => {})
    const late = client.lock('e')
    await client.using('f', () => {})
    await late
    let ran = 0
    if (client.lock('r')) ran++
    if (client.tryLock('r')) ran++
    if (semaphore.acquire()) ran++
    if (semaphore.tryAcquire()) ran++
    if (shared.tryUpgrade()) ran++
    if (client.adopt(text)) ran++
    await until(6)
    console.log(ran, seen.sort().join(', '))
    process.exit()`
  const args = ['--input-type=module', '--eval', program]
  const { stdout, stderr } = await promisify(execFile)(process.execPath, args, { timeout: 60_000 })
  const methods = ['acquire', 'adopt', 'lock', 'tryAcquire', 'tryLock', 'tryUpgrade']
  assert.equal(stdout, `6 ${methods.map((method) => `QuorlockWarning LEASE_NOT_AWAITED ${method}`).join(', ')}\n`)
  for (const method of methods) assert.match(stderr, new RegExp(`nobody awaits the lease of \`${method}\`, so the code after this call runs`))
})
