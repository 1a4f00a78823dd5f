// Secrets in URLs are never shown; names of resources must be well-formed.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { test } from 'node:test'
import { inspect } from 'node:util'
import { Client, ConfigError, QuorumError } from 'quorlock'
import { load } from './rows.js'
import { Servers } from './servers.js'

const MARK = 'MARK'
const PASSWORD = `${MARK}/${MARK}@${MARK}?${MARK}#${MARK}%${MARK}:${MARK}&${MARK}`

/**
 * Checks that no text form of the values contains a secret. Ignores case, because host names are
 * converted to lower case.
 */
function assertHidden(...values) {
  for (const value of values) {
    for (const text of [String(value), inspect(value, { depth: null, showHidden: true }), JSON.stringify(value) ?? '']) {
      assert(!text.toUpperCase().includes(MARK), text)
    }
  }
}

/** Checks that neither the error nor the copy that a worker would receive contains a secret. */
function check(error) {
  assertHidden(error, error.message, error.stack, error.nodes, structuredClone(error))
}

function* urls() {
  const { schemes, logins, places } = load('secrets')
  for (const scheme of schemes) {
    for (const login of [...logins, '']) {
      for (const place of places) if ((login + place).includes(MARK)) yield `${scheme}://${login}${place}`
    }
  }
}

test('no URL shows its secrets', () => {
  let [good, bad] = [0, 0]
  for (const url of urls()) {
    let client
    try {
      client = new Client([url])
    } catch (error) {
      assert(error instanceof ConfigError)
      check(error)
      bad++
      continue
    }
    assertHidden(client, client.stats())
    good++
  }
  assert(good > 30 && bad > 300)
})

for (const user of ['', MARK]) {
  test(`nodes that refuse show no secrets (user ${user || 'none'})`, async (t) => {
    const servers = await Servers.start(t, 2, { password: 'right' })
    const login = `${user}:${encodeURIComponent(PASSWORD)}`
    const [one, two] = servers.all.map(({ port }) => `redis://${login}@127.0.0.1:${port}`)
    for (const nodes of [[one, two], [`redis://${login}@127.0.0.1:1`, `${one}/9999`]]) {
      const client = new Client(nodes, { connectTimeout: 500 })
      for (const operation of [() => client.lock('r', { wait: 0 }), () => client.locked('r')]) {
        await assert.rejects(operation, (error) => (check(error), error instanceof QuorumError))
      }
      const diagnosis = await client.doctor()
      assertHidden(client, client.stats(), diagnosis, String(diagnosis))
      await client.close()
    }
  })
}

test('nodes in use show no secrets', async (t) => {
  const servers = await Servers.start(t, 3, { password: PASSWORD })
  const client = new Client(servers.urls, { wait: 60_000 })
  const lease = await client.lock('r')
  check(await client.lock('r', { wait: 0 }).then(assert.fail, (error) => error))
  assert(!inspect(lease, { showHidden: true }).includes(lease.token.slice(0, 9)), 'the token, which is enough to release the lease, must not be shown')
  assertHidden(client, lease, client.stats(), await client.doctor(), Object.getOwnPropertyNames(client))
  await client.close()
  assert.throws(() => lease.check(), (error) => (check(error), true))
})

test('a program that fails prints no secrets', async (t) => {
  const servers = await Servers.start(t, 1, { password: 'right' })
  const program = `
    import { Client } from 'quorlock'
    const client = new Client([process.env.MARKED_URL])
    console.log(client, String(await client.doctor()))
    await client.lock('r', { wait: 0 })`
  for (const place of [`127.0.0.1:${servers.all[0].port}`, '127.0.0.1:1', '127.0.0.1:port']) {
    const url = `redis://${MARK}:${encodeURIComponent(PASSWORD)}@${place}`
    const env = { ...process.env, MARKED_URL: url, RUST_BACKTRACE: 'full', RUST_LOG: 'trace' }
    await new Promise((ended) => {
      execFile(process.execPath, ['--input-type=module', '-e', program], { env }, (error, out, err) => {
        assert.equal(error?.code, 1)
        assert.match(err, /ConfigError|QuorumError/)
        // Node.js may print the source with the error, so the source does not contain the URL.
        assertHidden(out, err)
        ended()
      })
    })
  }
})

test('names that are not well-formed strings are refused', async () => {
  const client = new Client(['memory://names'])
  for (const name of ['a\ud800', '\udfff', '', 7, null, undefined, {}, Buffer.from('a'), ['a', '\ud800']]) {
    await assert.rejects(client.lock(name), /^ConfigError: (the resource|resource 2) must be a string/)
    await assert.rejects(client.locked(name), ConfigError)
  }
  assert.throws(() => new Client(['memory://a'], { keyPrefix: 'a\ud800' }), /keyPrefix must be a string of Unicode characters/)
  assert.throws(() => new Client(['memory://a\ud800']), ConfigError)
  await client.close()
})
