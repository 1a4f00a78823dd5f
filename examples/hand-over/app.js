// Accepts orders, which a worker ships. The lock is held from the request until then.
//
//   QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 \
//     QUEUE_URL=redis://127.0.0.1:6379 node app.js

import express from 'express'
import { Client, LeaseLostError, LockTimeoutError, QuorumError } from 'quorlock'

const QUEUED = 30_000 // ms for which the lock is held for a job that waits in the queue; at most restartGuard

// ./bullmq.js adds jobs for worker.js, and ./celery.js for the task in tasks.py.
const jobs = await import(process.env.JOBS ?? './bullmq.js')
const locks = new Client(undefined, { ttl: 5_000 }) // uses the nodes in QUORLOCK_NODES
const app = express()

app.post('/orders/:order/ship', async (request, response) => {
  const { order } = request.params
  // Do not wait: while the order is queued or being shipped, the answer is 409.
  const text = await locks.using(`orders:${order}`, { wait: 0 }, async (lease) => {
    // Here, the request could check the order and reserve its items.
    return await lease.detach({ within: QUEUED })
  })
  try {
    await jobs.add(Number(order), text)
  } catch (error) {
    // Nobody else has the text, so take the lease back. Others need not wait.
    const lease = await locks.adopt(text)
    await lease.release()
    console.warn(error)
    return response.status(503).end()
  }
  response.status(202).end()
})

function statusOf(error) {
  if (error instanceof LockTimeoutError) return 409
  if (error instanceof QuorumError || error instanceof LeaseLostError) return 503
}

app.use((error, request, response, next) => {
  const status = statusOf(error)
  if (status === undefined) return next(error)
  response.status(status).set('Retry-After', '1').json({ error: error.code })
})

const server = app.listen(process.env.PORT ?? 3000, () => {
  console.log(`listening on port ${server.address().port}`)
})

process.once('SIGTERM', () => {
  server.close(async () => {
    await locks.close()
    await jobs.close()
  })
})
