// The option `credentials`: users and passwords from a function, asked for each new connection.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { suite, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { inspect } from 'node:util'
import { Worker } from 'node:worker_threads'
import { Client, ConfigError, QuorumError } from 'quorlock'
import { Servers, until } from './servers.js'

const FIRST = 'f1rst-s3cret'
const SECOND = 's3cond-s3cret'
const USERS = { users: { app: `on >${FIRST} ~* &* +@all` } }

const start = (t, count = 3) => Servers.startWith(t, { start: count, ...USERS })

/** Whether the client acquires and releases a lock. */
async function canLock(client) {
  try {
    await (await client.lock('r', { wait: 0 })).release()
    return true
  } catch (error) {
    assert(error instanceof QuorumError, error)
    return false
  }
}

for (const [form, later] of [
  ['a function', (login) => login],
  ['an async function', (login) => sleep(10, login)],
]) {
  test(`each connection asks ${form}`, async (t) => {
    const servers = await start(t)
    const [asked, vault] = [[], { password: FIRST }]
    const credentials = (address) => {
      asked.push(address)
      return later({ username: 'app', password: vault.password })
    }
    const client = new Client(servers.urls, { credentials, nodeTimeout: 5000 })
    t.after(() => client.close())
    assert.deepEqual(asked, [])
    assert(await canLock(client))
    await until(() => asked.length === 3)
    assert.deepEqual(asked.toSorted(), servers.urls.toSorted())

    vault.password = SECOND
    for (let server = 0; server < 3; server++) {
      await servers.command(server, 'ACL', 'SETUSER', 'app', 'resetpass', `>${SECOND}`)
      await servers.command(server, 'CLIENT', 'KILL', 'USER', 'app')
    }
    await until(() => canLock(client))
    await until(() => asked.length >= 6)
    const shown = inspect([client, client.stats(), await client.doctor()], { depth: null })
    assert(!shown.includes('s3c'), shown)
  })
}

class VaultError extends Error {}

const SHAPE = 'must return { username, password }'
// Referred to from here: what waits for a promise that nothing refers to may be collected, and then has no answer.
const NEVER = new Promise(() => {})

suite('a failure is named without secrets', () => {
  for (const [what, credentials, expected, connectTimeout = 10_000] of [
    ['throws', () => { throw new VaultError(FIRST) }, 'failed: VaultError'],
    ['rejects', () => Promise.reject(new VaultError(FIRST)), 'failed: VaultError'],
    ['throws a string', () => { throw FIRST }, 'failed: String'],
    ['throws null', () => { throw null }, 'failed: object'],
    ['a string', () => FIRST, SHAPE],
    ['nothing', () => {}, SHAPE],
    ['null', () => null, SHAPE],
    ['an array', () => ['app', FIRST], SHAPE],
    ['no password', () => ({ username: 'app' }), SHAPE],
    ['a number as the password', () => ({ username: 'app', password: 1 }), SHAPE],
    ['a number as the user', () => ({ username: 1, password: FIRST }), SHAPE],
    ['a lone surrogate', () => ({ password: '\ud800' }), SHAPE],
    ['hangs', () => NEVER, 'returned nothing within 300 ms', 300],
  ]) {
    test(what, async (t) => {
      const servers = await start(t, 1)
      const client = new Client(servers.urls, { credentials, connectTimeout, nodeTimeout: 5000 })
      t.after(() => client.close())
      const error = await client.lock('r', { wait: 0 }).catch((error) => error)
      assert(error instanceof QuorumError, error)
      assert.equal(error.nodes[0].outcome, 'unreachable')
      assert(error.nodes[0].detail.includes(expected), error.nodes[0].detail)
      assert(!inspect(error).includes('s3c'), inspect(error))
    })
  }
})

test('a default user has a password only', async (t) => {
  const servers = await Servers.startWith(t, { start: 1, password: FIRST })
  const client = new Client([`redis://127.0.0.1:${servers.all[0].port}`], { credentials: () => ({ password: FIRST }) })
  t.after(() => client.close())
  assert(await canLock(client))
})

test('what is no function is refused at once', () => {
  for (const credentials of [{ username: 'app', password: FIRST }, FIRST, 1, true, Promise.resolve()]) {
    assert.throws(
      () => new Client(['redis://localhost'], { credentials }),
      (error) => error instanceof ConfigError && /credentials must be a function/.test(error.message) && !error.message.includes(FIRST),
    )
  }
  for (const credentials of [undefined, null]) assert(new Client(['memory://credentials'], { credentials }))
})

const WORK = `
const { Client } = require('quorlock')
const nodes = JSON.parse(process.env.NODES)
let asked = () => {}
const never = new Promise(() => {})
const client = new Client(nodes, {
  connectTimeout: 60_000,
  credentials: () => { asked(); return process.env.HANG ? never : { username: 'app', password: '${FIRST}' } },
})
`
const environment = (servers, hang) => ({ ...process.env, NODES: JSON.stringify(servers.urls), HANG: hang ? '1' : '' })
const cwd = fileURLToPath(new URL('../..', import.meta.url))

test('a client with such a function does not keep the process alive', async (t) => {
  const servers = await start(t)
  const program = `${WORK}
    client.lock('r').then((lease) => lease.release()).then(() => console.log('released'))`
  const done = spawnSync(process.execPath, ['-e', program], { cwd, env: environment(servers), encoding: 'utf8', timeout: 60_000 })
  assert.deepEqual([done.status, done.stdout, done.stderr], [0, 'released\n', ''])
})

test('a worker thread asks on its own event loop, and can end meanwhile', async (t) => {
  const servers = await start(t)
  const run = (code, hang) => new Worker(`${WORK}\nconst { parentPort } = require('node:worker_threads')\n${code}`, {
    eval: true,
    env: environment(servers, hang),
  })
  const worker = run("client.lock('r').then((lease) => lease.release()).then((released) => parentPort.postMessage(released))")
  assert.deepEqual(await once(worker, 'message'), [true])
  await worker.terminate()
  for (let round = 0; round < 10; round++) {
    const hanging = run("asked = () => parentPort.postMessage('asked'); client.lock('r').catch(() => {})", true)
    await once(hanging, 'message')
    await hanging.terminate()
  }
  // The process still works.
  const client = new Client(servers.urls, { credentials: () => ({ username: 'app', password: FIRST }) })
  t.after(() => client.close())
  assert(await canLock(client))
})
