// Ships orders. A job takes over the lock of the request that has added it.
//
//   QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 \
//     GATEWAY_URL=http://127.0.0.1:8900 QUEUE_URL=redis://127.0.0.1:6379 node worker.js

import { Worker } from 'bullmq'
import IORedis from 'ioredis'
import { Client, LeaseLostError } from 'quorlock'

const locks = new Client(undefined, { ttl: 5_000 }) // uses the nodes in QUORLOCK_NODES
const connection = new IORedis(process.env.QUEUE_URL, { maxRetriesPerRequest: null })
const shipped = new Set() // stands for a database

async function hold({ order, lease }) {
  try {
    return await locks.adopt(lease)
  } catch (error) {
    if (!(error instanceof LeaseLostError)) throw error
    // An earlier attempt has adopted the lease, or the job was queued for too long.
    return await locks.lock(`orders:${order}`, { wait: 0 })
  }
}

async function ship({ data }) {
  const lease = await hold(data)
  try {
    if (shipped.has(data.order)) return
    const answer = await fetch(`${process.env.GATEWAY_URL}/shipments`, {
      method: 'POST',
      // Makes a repetition harmless if the worker dies before it records the shipment.
      headers: { 'Idempotency-Key': `order-${data.order}` },
      body: JSON.stringify({ order: data.order, fence: lease.fence }),
      // A lost lease aborts the call. The job fails, and is retried.
      signal: lease.signal,
    })
    if (!answer.ok) throw new Error(`the gateway answered ${answer.status}`)
    lease.check()
    shipped.add(data.order)
  } finally {
    await lease.release()
  }
}

const worker = new Worker('shipments', ship, { connection, concurrency: 4 })
worker.on('completed', (job) => console.log(`${job.id} completed`))
worker.on('failed', (job, error) => console.log(`${job?.id} failed: ${error.message}`))
worker.on('error', (error) => console.log(error.message))

process.once('SIGTERM', async () => {
  // Running jobs are finished first.
  await worker.close()
  await locks.close()
  connection.disconnect()
})

await worker.waitUntilReady()
console.log('ready')
