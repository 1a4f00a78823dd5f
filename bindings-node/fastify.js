// A Fastify plugin: `app.quorlock` is a client, whose errors become HTTP statuses, and which is closed with the server.

'use strict'

const { Client, LeaseLostError, LockTimeoutError, QuorumError } = require('./index.js')

async function quorlock(app, { nodes, errorHandler = true, ...options }) {
  const client = new Client(nodes, options)
  app.decorate('quorlock', client)
  app.addHook('onClose', () => client.close())
  if (errorHandler) app.setErrorHandler(answer)
}

/** Answers lock errors. Passes other errors to the handler that was set before, or to Fastify's own. */
function answer(error, request, reply) {
  const status = statusOf(error)
  if (status === undefined) throw error
  if (status !== 409) request.log.warn(error) // contention is normal
  if (reply.raw.closed) return reply.hijack() // the HTTP client has disconnected
  return reply.code(status).header('Retry-After', '1').send({ error: error.code })
}

function statusOf(error) {
  if (error instanceof LockTimeoutError) return 409
  if (error instanceof QuorumError || error instanceof LeaseLostError) return 503
}

// Makes the decorator and the error handler apply to the whole app, not only to routes that the plugin registers.
quorlock[Symbol.for('skip-override')] = true
quorlock[Symbol.for('fastify.display-name')] = 'quorlock'
quorlock[Symbol.for('plugin-meta')] = { name: 'quorlock', fastify: '>=4' }

module.exports = { quorlock }
