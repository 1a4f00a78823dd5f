// Pays orders. Only one request at a time handles an order, in all processes of all hosts.
//
//   QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 \
//     GATEWAY_URL=http://127.0.0.1:8900 node app.js

import Fastify from 'fastify'
import { quorlock } from 'quorlock/fastify'

const paid = new Set() // stands for a database
const app = Fastify()

await app.register(quorlock, { ttl: 5_000 }) // uses the nodes in QUORLOCK_NODES

app.post('/orders/:order/pay', async (request) => {
  const { order } = request.params
  // `request.signal` aborts when the client disconnects, which ends the wait.
  const options = { wait: 1_000, signal: request.signal }
  const charged = await app.quorlock.using(`orders:${order}`, options, async (lease) => {
    if (paid.has(order)) return false
    await charge(order, lease)
    paid.add(order)
    return true
  })
  return { charged }
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

// Requests in progress are answered first. Then the plugin closes its client.
process.once('SIGTERM', () => app.close())

const address = await app.listen({ port: Number(process.env.PORT ?? 3000) })
console.log(`listening on port ${new URL(address).port}`)
