// Pays for orders. Only one request at a time works on an order, whatever process or host it is on.
//
//   QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 node app.js

import express from 'express'
import { Client, LeaseLostError, LockTimeoutError, QuorumError } from 'quorlock'

const locks = new Client(undefined, { ttl: 5_000 }) // of the nodes in QUORLOCK_NODES
const paid = new Set() // stands for a database
const app = express()

app.post('/orders/:order/pay', async (request, response) => {
  const { order } = request.params
  // Who hangs up does not wait any more.
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
    // The lock keeps others out; the key makes a repetition after a crash harmless.
    headers: { 'Idempotency-Key': `order-${order}` },
    body: JSON.stringify({ order, fence: lease.fence }),
    // A lost lease ends the call.
    signal: lease.signal,
  })
  if (!answer.ok) throw new Error(`the gateway answered ${answer.status}`)
}

function statusOf(error) {
  if (error instanceof LockTimeoutError) return 409
  if (error instanceof QuorumError || error instanceof LeaseLostError) return 503
}

// Express knows error handlers by their four parameters.
app.use((error, request, response, next) => {
  if (response.closed) return // nobody is there to be told
  const status = statusOf(error)
  if (status === undefined) return next(error)
  if (status !== 409) console.warn(error.message) // that somebody else is at it is no trouble
  response.status(status).set('Retry-After', '1').json({ error: error.code })
})

const server = app.listen(process.env.PORT ?? 3000, () => {
  console.log(`listening on port ${server.address().port}`)
})

process.once('SIGTERM', () => {
  // Requests under way are answered first.
  server.close(() => locks.close())
})
