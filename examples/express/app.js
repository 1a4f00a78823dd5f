// Pays orders. Only one request at a time handles an order, in all processes of all hosts.
//
//   QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 \
//     GATEWAY_URL=http://127.0.0.1:8900 node app.js

import express from 'express'
import { Client, LeaseLostError, LockTimeoutError, QuorumError } from 'quorlock'

const locks = new Client(undefined, { ttl: 5_000 }) // uses the nodes in QUORLOCK_NODES
const paid = new Set() // stands for a database
const app = express()

app.post('/orders/:order/pay', async (request, response) => {
  const { order } = request.params
  // Stop waiting when the client disconnects.
  const gone = new AbortController()
  response.on('close', () => gone.abort())

  const options = { wait: 1_000, signal: gone.signal }
  const charged = await locks.using(`orders:${order}`, options, async (lease) => {
    if (paid.has(order)) return false
    await charge(order, lease)
    paid.add(order)
    return true
  })
  response.json({ charged })
})

async function charge(order, lease) {
  const answer = await fetch(`${process.env.GATEWAY_URL}/charges`, {
    method: 'POST',
    // The lock excludes other requests; the key makes a repetition after a crash harmless.
    headers: { 'Idempotency-Key': `order-${order}` },
    body: JSON.stringify({ order, fence: lease.fence }),
    // A lost lease aborts the call.
    signal: lease.signal,
  })
  if (!answer.ok) throw new Error(`the gateway answered ${answer.status}`)
}

function statusOf(error) {
  if (error instanceof LockTimeoutError) return 409
  if (error instanceof QuorumError || error instanceof LeaseLostError) return 503
}

// Express recognizes error handlers by their four parameters.
app.use((error, request, response, next) => {
  if (response.closed) return // the client has disconnected
  const status = statusOf(error)
  if (status === undefined) return next(error)
  if (status !== 409) console.warn(error) // contention is normal
  response.status(status).set('Retry-After', '1').json({ error: error.code })
})

const server = app.listen(process.env.PORT ?? 3000, () => {
  console.log(`listening on port ${server.address().port}`)
})

process.once('SIGTERM', () => {
  // Requests in progress are answered first.
  server.close(() => locks.close())
})
