// Arguments of the wrong type are refused, never ignored.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { suite, test } from 'node:test'
import { inspect } from 'node:util'
import { runInNewContext } from 'node:vm'
import promClient from 'prom-client'
import { Client, ConfigError } from 'quorlock'
import { instrument } from 'quorlock/opentelemetry'
import { register } from 'quorlock/prometheus'
import { load } from './rows.js'

const CALLS = load('arguments').filter((row) => row.node)

/** Values that are refused as options, each with a pattern that the error message must match. */
const WRONG = [
  [10_000, /not 10000; if it is the ttl in ms, write \{ ttl: 10000 \}/],
  ['secret', /not a string; several resources, or nodes, are one array/],
  [true, /not true/],
  [null, /not null/],
  [5n, /not a bigint/],
  [Symbol('ttl'), /not a symbol/],
  [[10_000], /not \[10000\]/],
  [() => {}, /not a function; `using` takes a function/],
  [new Map([['ttl', 10_000]]), /class Map/],
  [Promise.resolve({ ttl: 10_000 }), /class Promise/],
  [AbortSignal.abort(), /class AbortSignal; write \{ signal \}/],
  [new (class Settings {
    get ttl() {
      return 10_000
    }
  })(), /class Settings/],
  [Object.create({ ttl: 10_000 }), /not an object/],
]

/**
 * Checks that the call throws or rejects with a ConfigError about options whose message matches
 * `expected`.
 */
async function assertRefused(call, expected) {
  await assert.rejects(async () => call(), (error) => {
    assert(error instanceof ConfigError)
    assert.match(error.message, /^options must be a plain object/)
    assert.match(error.message, expected)
    return true
  })
}

suite('options that are not an object are refused', () => {
  const client = new Client(['memory://arguments'])
  const work = () => assert.fail('it ran')
  const calls = {
    client: (options) => new Client(['memory://arguments'], options),
    lock: (options) => client.lock('r', options),
    using: (options) => client.using('r', options, work),
    // The arguments of `using` in redlock 5, with settings before the function.
    'using, with settings': (options) => client.using(['r'], options, { retryCount: 0 }, work),
  }
  for (const [name, call] of Object.entries(calls)) {
    test(name, async () => {
      for (const [options, expected] of WRONG) await assertRefused(() => call(options), expected)
      assert(!(await client.locked('r')))
    })
  }
  test('instrument refuses options that are not an object or are unknown', async () => {
    for (const [options] of WRONG) await assertRefused(() => instrument(client, options), /not/)
    assert.throws(() => instrument(client, { meterprovider: {} }), {
      name: 'ConfigError',
      message: 'meterprovider is not an option here; it can be name, meterProvider, tracerProvider',
    })
  })
})

suite('a mistake in a call has the message in the table', () => {
  class Redis {}
  const client = new Client(['memory://arguments-calls'], { wait: 0 })
  for (const { mistake, node: code, says, warns, never = [] } of CALLS) {
    if (warns) continue
    test(`${mistake}: ${code}`, async () => {
      delete process.env.QUORLOCK_NODES
      const call = async () => new Function('client', 'Client', 'Redis', `return ${code}`)(client, Client, Redis)
      if (says === null) {
        await (await call())?.release?.()
        return
      }
      const error = await call().then(() => assert.fail('no error'), (error) => error)
      assert(error instanceof ConfigError)
      assert.equal(error.message, says)
      for (const secret of never) assert(!inspect(error).includes(secret))
    })
  }
})

suite('a ttl in the wrong unit is warned about once', () => {
  for (const { mistake, node: code, warns } of CALLS.filter((row) => row.warns)) {
    test(mistake, () => {
      const program = `
        const { Client } = require('quorlock')
        const client = new Client(['memory://a'])
        process.on('warning', ({ name, code, message }) => console.log(\`\${name} \${code}: \${message}\`))
        Promise.resolve(${code}).then(() => client.lock('y', { ttl: 20 })).then(() => process.exit())`
      const { stdout, stderr } = spawnSync(process.execPath, ['-e', program], { encoding: 'utf8' })
      assert.equal(stdout, `QuorlockWarning TTL_UNIT: ${warns}\n`, stderr)
    })
  }
})

test('an array may contain itself', async () => {
  const array = []
  array.push(array)
  assert.throws(() => new Client(array), { code: 'CONFIG', message: /not an array$/ })
  assert.throws(() => new Client(['memory://a'], { retryDelay: array }), { code: 'CONFIG', message: /not \[an array\]$/ })
  await assert.rejects(new Client(['memory://a']).lock(array), { code: 'CONFIG', message: /not an array$/ })
})

test('long names are shortened in all texts', async () => {
  const name = 'x'.repeat(8192)
  const client = new Client(['memory://arguments-long'], { wait: 0 })
  const lease = await client.lock(name)
  const error = await client.lock(name).catch((error) => error)
  assert.deepEqual(error.resources, [name])
  assert(await lease.release())
  const lost = await lease.extend().catch((error) => error)
  for (const { message } of [error, lost]) {
    assert(message.includes(`${'x'.repeat(100)}…`), message)
    assert(!message.includes('x'.repeat(101)), message)
  }
})

test('options may come from another realm, have no prototype or be undefined', async () => {
  const client = new Client(['memory://arguments-realm'], undefined)
  const bare = Object.assign(Object.create(null), { ttl: 500 })
  for (const options of [bare, runInNewContext('({ ttl: 500 })')]) {
    const lease = await client.lock('r', options)
    assert(lease.remaining <= 500)
    assert(await lease.release())
  }
  const work = () => 'done'
  assert.equal(await client.using('r', undefined, work), 'done')
  assert.equal(await client.elect('r', undefined, work), 'done')
  assert.equal(await client.semaphore('r', { limit: 1, permits: undefined }).using(undefined, work), 'done')
  const mode = await client.using('r', { ttl: undefined, signal: undefined, mode: { r: undefined } }, ({ mode }) => mode)
  assert.equal(mode, 'exclusive')
})

test('unknown options and invalid signals are refused', async () => {
  const client = new Client(['memory://arguments-unknown'])
  const config = { code: 'CONFIG' }
  await assert.rejects(client.lock('r', { ttk: 500 }), { ...config, message: /ttk is not an option/ })
  await assert.rejects(client.using('r', { duration: 500 }, () => {}), { ...config, message: /duration/ })
  assert.throws(() => new Client(['memory://a'], { signal: AbortSignal.abort() }), config)
  for (const signal of [5, 'abort', {}, new AbortController(), { aborted: false, addEventListener() {} }]) {
    await assert.rejects(client.lock('r', { signal }), { ...config, message: /signal must be an AbortSignal/ })
  }
  assert(!(await client.locked('r')))
})

test('extend refuses values that are not durations', async () => {
  const client = new Client(['memory://arguments-extend'])
  const lease = await client.lock('r')
  for (const ttl of [{ ttl: 500 }, null, '500', [500], () => {}, NaN]) {
    await assert.rejects(lease.extend(ttl), { code: 'CONFIG', message: /^ttl must be a duration/ })
  }
  assert(await lease.release())
})

test('using refuses work that is not a function, without acquiring the lock', async () => {
  const client = new Client(['memory://arguments-work'])
  const { attempts } = client.stats()
  const config = { code: 'CONFIG', message: /^using needs a function/ }
  await assert.rejects(client.using('r'), config)
  await assert.rejects(client.using('r', { ttl: 500 }), config)
  for (const work of [null, 5, 'work', {}, Promise.resolve()]) {
    await assert.rejects(client.using('r', {}, work), config)
  }
  await assert.rejects(client.using('r', () => {}, { ttl: 500 }), { code: 'CONFIG' })
  assert.equal(client.stats().attempts, attempts)
})

test('using refuses a generator, whose body would run without the lock', async () => {
  const client = new Client(['memory://arguments-generator'])
  const config = { code: 'CONFIG', message: /generator/ }
  let ran = false
  async function* rows() {
    ran = true
  }
  await assert.rejects(client.using('r', rows), config)
  await assert.rejects(client.using('r', async () => rows()), config)
  await assert.rejects(client.using('r', function* () {}), config)
  // As compilers write it for older versions of JavaScript: without a tag.
  const lowered = () => ({ next: rows, [Symbol.asyncIterator]: () => lowered })
  await assert.rejects(client.using('r', lowered), config)
  assert(!ran)
  assert.deepEqual([...(await client.using('r', () => [7].values()))], [7])
  assert(!(await client.locked('r')))
})

test('properties of Object.prototype are no options', async (t) => {
  const client = new Client(['memory://arguments-prototype'])
  t.after(() => ['code', 'keep', 'ttl', 'mode', 'signal'].forEach((name) => delete Object.prototype[name]))
  Object.assign(Object.prototype, { code: 'x', keep: 'x', ttl: 'x', mode: 'x', signal: 'x' })
  const failing = client.using('r', () => {
    throw new RangeError('mine')
  })
  await assert.rejects(failing, RangeError)
  assert(!(await client.locked('r')))
})

test('exporters refuse values that are not clients', () => {
  const config = { code: 'CONFIG' }
  const registry = new promClient.Registry()
  for (const client of [undefined, null, 5, 'client', {}, { orders: {} }]) {
    assert.throws(() => register(registry, client), config)
    assert.throws(() => instrument(client), { code: 'CONFIG', message: /a Client is needed/ })
  }
})
