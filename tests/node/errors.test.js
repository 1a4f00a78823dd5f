// What loggers, `console.log` and HTTP clients see of errors, leases and clients.

import assert from 'node:assert/strict'
import { PassThrough } from 'node:stream'
import { test } from 'node:test'
import { inspect } from 'node:util'
import { Worker } from 'node:worker_threads'
import Fastify from 'fastify'
import pino from 'pino'
import { Client, LockTimeoutError, QuorumError } from 'quorlock'
import winston from 'winston'

const NODES = ['redis://127.0.0.1:1', 'redis://127.0.0.1:2', 'memory://errors']

/** Returns the error of a lock on nodes of which two of three are down. */
async function outage() {
  const client = new Client(NODES, { connectTimeout: 100 })
  const error = await client.lock('orders:42').then(assert.fail, (error) => error)
  assert(error instanceof QuorumError)
  await client.close()
  return error
}

/** Returns a stream, and a function that returns the JSON of the line about an error that was written to it. */
function sink() {
  const stream = new PassThrough()
  const lines = () => String(stream.read()).trim().split('\n').map((line) => JSON.parse(line))
  return [stream, () => lines().find(({ level }) => ['error', 50, 40].includes(level))]
}

/** Checks the fields that every logger should show. */
function assertShown(shown, error) {
  assert.equal(shown.name, 'QuorumError')
  assert.equal(shown.code, 'NO_QUORUM')
  assert(shown.message.includes(error.message))
  assert.deepEqual(shown.resources, ['orders:42'])
  assert.deepEqual(shown.nodes.map(({ address }) => address), NODES)
  assert.deepEqual(shown.nodes.map(({ outcome }) => outcome), ['unreachable', 'unreachable', 'granted'])
}

test('console.log and JSON.stringify show the name, the code, the message and the nodes', async () => {
  const error = await outage()
  const text = inspect(error)
  assert.match(error.message, / \[1 granted, 2 unreachable\]$/)
  assert.match(text, /^QuorumError: .*"?orders:42"?.*\n {4}at Client\.lock /)
  for (const part of ["code: 'NO_QUORUM'", ...NODES, "outcome: 'unreachable'"]) assert(text.includes(part), text)
  assert.equal(text.split(error.message).length, 2, 'the message is shown once')
  assertShown(JSON.parse(JSON.stringify(error)), error)
})

test('pino shows the name, the code and the nodes', async () => {
  const error = await outage()
  const [stream, read] = sink()
  pino(stream).error(error)
  assertShown(read().err, error)
  pino(stream).warn({ err: error }, 'no lock')
  assertShown(read().err, error)
})

test('winston shows the name, the code and the nodes', async () => {
  const error = await outage()
  const { combine, errors, json } = winston.format
  for (const format of [json(), combine(errors({ stack: true }), json())]) {
    const [stream, read] = sink()
    const logger = winston.createLogger({ format, transports: new winston.transports.Stream({ stream }) })
    logger.error(error)
    assertShown(read(), error)
    logger.error('no lock', error)
    assertShown(read(), error)
    logger.error('no lock', { error })
    assertShown(read().error, error)
  }
})

test("Fastify's own error handler sends the code and the message, without addresses, and logs all", async (t) => {
  const [stream, read] = sink()
  const app = Fastify({ loggerInstance: pino(stream) })
  t.after(() => app.close())
  const error = await outage()
  app.get('/', () => Promise.reject(error))
  const response = await app.inject('/')
  assert.equal(response.statusCode, 500)
  assert.deepEqual(response.json(), {
    statusCode: 500,
    code: 'NO_QUORUM',
    error: 'Internal Server Error',
    message: error.message,
  })
  for (const address of ['127.0.0.1', 'redis://', 'memory://']) assert(!response.body.includes(address), response.body)
  assertShown(read().err, error)
})

test('an error of a class of its own keeps its name and code', () => {
  class Busy extends LockTimeoutError {}
  const { name, code, message } = JSON.parse(JSON.stringify(new Busy('later')))
  assert.deepEqual([name, code, message], ['LockTimeoutError', 'TIMEOUT', 'later'])
  assert.deepEqual(Object.keys(new QuorumError()), Object.keys(new QuorumError('text')))
})

test('console.log shows the state of a lease and a client, without the token', async () => {
  const client = new Client(['memory://errors-inspect'])
  const [one, two] = [await client.lock('orders:42'), await client.lock(['a', '__proto__'])]
  const text = inspect(one)
  for (const part of ["resource: 'orders:42'", `fence: ${one.fence}`, 'valid: true', 'remaining: ']) {
    assert(text.includes(part), text)
  }
  const several = inspect(two)
  assert(several.includes("resources: [ 'a', '__proto__' ]"), several)
  assert(several.includes(`['__proto__']: ${two.fences.__proto__}`), several)
  for (const lease of [one, two]) {
    const all = inspect(lease, { depth: null, showHidden: true })
    assert(all.includes(`token: '${lease.token.slice(0, 8)}…'`), all)
    assert(!all.includes(lease.token.slice(0, 9)), all)
  }
  assert.equal(inspect(client), "Client { nodes: [ 'memory://errors-inspect' ], closed: false }")
  await client.close()
  assert.match(inspect(one), /valid: false,\s+remaining: 0/)
  assert.match(inspect(client), /closed: true/)
})

test('a lease and a client cannot be sent to another thread', async (t) => {
  const client = new Client(['memory://errors-clone'])
  const lease = await client.lock('r')
  const worker = new Worker('', { eval: true })
  t.after(() => worker.terminate())
  const refused = (advice) => ({ name: 'DataCloneError', message: advice })
  for (const send of [structuredClone, (value) => worker.postMessage(value)]) {
    assert.throws(() => send(lease), refused(/a Lease works only in the thread that acquired it.* send its fence/))
    assert.throws(() => send({ lease }), refused(/a Lease works only/))
    assert.throws(() => send(client), refused(/a Client works only .* create one in each thread/))
  }
  // Otherwise they are objects like any other.
  assert.equal(JSON.stringify({ lease, client }), '{"lease":{},"client":{}}')
  assert(await lease.release())
})
