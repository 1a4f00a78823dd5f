// A plugin that provides `app.locks`, answers its errors, and closes it at the end.

import { Client, LeaseLostError, LockTimeoutError, QuorumError } from 'quorlock'

export default async function locking(app, { nodes, ...options }) {
  const locks = new Client(nodes, options)
  app.decorate('locks', locks)
  app.addHook('onClose', () => locks.close())

  app.setErrorHandler((error, request, reply) => {
    const status = statusOf(error)
    if (status === undefined) throw error // to Fastify's own handler
    if (status !== 409) request.log.warn(error) // contention is normal
    if (reply.raw.closed) return reply.hijack() // the client has disconnected
    return reply.code(status).header('Retry-After', '1').send({ error: error.code })
  })
}

function statusOf(error) {
  if (error instanceof LockTimeoutError) return 409
  if (error instanceof QuorumError || error instanceof LeaseLostError) return 503
}

// Makes the plugin apply to the whole app, not only to its own routes.
locking[Symbol.for('skip-override')] = true
