// The Fastify plugin: the client, the answers to errors, and the end of the server.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { test } from 'node:test'
import Fastify from 'fastify'
import { Client } from 'quorlock'
import { quorlock } from 'quorlock/fastify'
import { Servers } from './servers.js'

const require = createRequire(import.meta.url)

/** Returns the status, the header Retry-After and the body of an answer. */
async function get(app, url) {
  const response = await app.inject(url)
  return [response.statusCode, response.headers['retry-after'], response.json()]
}

/** Registers the plugin, and routes that hold the lock `r` and that fail. */
async function appWith(options, ownHandler) {
  const app = Fastify()
  app.register(quorlock, options)
  if (ownHandler) app.setErrorHandler(ownHandler)
  app.get('/lock', () => app.quorlock.using('r', { wait: 0 }, ({ resource }) => ({ resource })))
  app.get('/bug', () => Promise.reject(new RangeError('a bug')))
  await app.after()
  return app
}

test('the plugin provides a client and closes it with the server', async (t) => {
  const servers = await Servers.start(t, 3)
  const app = await appWith({ nodes: servers.urls, ttl: 5_000 })
  const client = app.quorlock
  assert(client instanceof Client)
  const lease = await client.lock('kept')
  assert.equal(lease.ttl, 5_000)
  assert.deepEqual(await get(app, '/lock'), [200, undefined, { resource: 'r' }])
  await app.close()
  assert(client.closed && !lease.valid)
  assert(await servers.isFree('kept'))
})

test('contention is answered with 409, an outage and a loss with 503, and other errors as before', async (t) => {
  const nodes = ['memory://fastify-answers']
  const app = await appWith({ nodes })
  const down = await appWith({ nodes: ['redis://127.0.0.1:1'], connectTimeout: 100 })
  for (const each of [app, down]) t.after(() => each.close())
  app.get('/lost', async () => {
    const other = new Client(nodes)
    const lease = await other.lock('lost')
    await other.close()
    lease.check()
  })
  const lease = await app.quorlock.lock('r')
  assert.deepEqual(await get(app, '/lock'), [409, '1', { error: 'TIMEOUT' }])
  await lease.release()
  assert.deepEqual(await get(app, '/lost'), [503, '1', { error: 'LEASE_LOST' }])
  assert.deepEqual(await get(down, '/lock'), [503, '1', { error: 'NO_QUORUM' }])
  const [status, , { message }] = await get(app, '/bug')
  assert.deepEqual([status, message], [500, 'a bug'])
})

test("an app's own error handler gets all errors without the plugin's handler, and in a scope of its own", async (t) => {
  const own = (error, request, reply) => reply.code(418).send({ own: error.code ?? error.message })
  const app = await appWith({ nodes: ['memory://fastify-own'], errorHandler: false }, own)
  const scoped = await appWith({ nodes: ['memory://fastify-own'] })
  for (const each of [app, scoped]) t.after(() => each.close())
  await scoped.register(async (scope) => {
    scope.setErrorHandler(own)
    scope.get('/scoped', () => scope.quorlock.using('r', { wait: 0 }, () => ({})))
  })
  const lease = await app.quorlock.lock('r')
  assert.deepEqual(await get(app, '/lock'), [418, undefined, { own: 'TIMEOUT' }])
  assert.deepEqual(await get(app, '/bug'), [418, undefined, { own: 'a bug' }])
  assert.deepEqual(await get(scoped, '/scoped'), [418, undefined, { own: 'TIMEOUT' }])
  assert.deepEqual(await get(scoped, '/lock'), [409, '1', { error: 'TIMEOUT' }])
  await lease.release()
})

test('an invalid option or node fails the registration', async () => {
  const config = { code: 'CONFIG' }
  await assert.rejects(appWith({ nodes: ['http://a'] }), config)
  await assert.rejects(appWith({ nodes: ['memory://a'], ttk: 5 }), { ...config, message: /ttk is not an option/ })
})

test('require and import get the same plugin, which names itself', async (t) => {
  assert.equal(require('quorlock/fastify').quorlock, quorlock)
  const app = await appWith({ nodes: ['memory://fastify-name'] })
  t.after(() => app.close())
  assert(app.hasPlugin('quorlock'))
})
