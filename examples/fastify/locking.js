// A plugin: `app.locks`, answers to its errors, and an orderly end.

import { Client, LeaseLostError, LockTimeoutError, QuorumError } from 'quorlock'

export default async function locking(app, { nodes, ...options }) {
  const locks = new Client(nodes, options)
  app.decorate('locks', locks)
  app.addHook('onClose', () => locks.close())

  app.setErrorHandler((error, request, reply) => {
    const status = statusOf(error)
    if (status === undefined) throw error // to Fastify's own handler
    if (status !== 409) request.log.warn(error) // that somebody else is at it is no trouble
    if (reply.raw.closed) return reply.hijack() // nobody is there to be told
    return reply.code(status).header('Retry-After', '1').send({ error: error.code })
  })
}

function statusOf(error) {
  if (error instanceof LockTimeoutError) return 409
  if (error instanceof QuorumError || error instanceof LeaseLostError) return 503
}

// What the plugin adds is for the whole app, not for the plugin's own routes.
locking[Symbol.for('skip-override')] = true
