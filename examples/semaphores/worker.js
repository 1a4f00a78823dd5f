// Exports data, with at most two exports of a customer at a time. Others do not wait for them.
//
//   QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 \
//     GATEWAY_URL=http://127.0.0.1:8900 QUEUE_URL=redis://127.0.0.1:6379 node worker.js

import { DelayedError, Worker } from 'bullmq'
import IORedis from 'ioredis'
import { Client, QuorumError } from 'quorlock'

const LIMIT = 2 // the same in tasks.py
const BUSY = 500 // ms

const locks = new Client(undefined, { ttl: 3_000 }) // uses the nodes in QUORLOCK_NODES
const connection = new IORedis(process.env.QUEUE_URL, { maxRetriesPerRequest: null })

/** Takes a permit of the customer. Resolves to null if none is free, or too few nodes can vote. */
async function permit(customer) {
  try {
    return await locks.semaphore(`customers:${customer}`, { limit: LIMIT }).tryAcquire()
  } catch (error) {
    if (!(error instanceof QuorumError)) throw error
    console.log(error.message)
    return null
  }
}

async function run(job, token) {
  const lease = await permit(job.data.customer)
  if (lease === null) {
    // Do not wait in the worker: it can run a job of another customer. This is no failed attempt.
    await job.moveToDelayed(Date.now() + BUSY * (1 + Math.random()), token)
    throw new DelayedError()
  }
  try {
    await send(job, lease)
    lease.check()
  } finally {
    await lease.release()
  }
}

async function send({ id, data }, lease) {
  const answer = await fetch(`${process.env.GATEWAY_URL}/exports`, {
    method: 'POST',
    headers: { 'Idempotency-Key': `export-${id}` },
    body: JSON.stringify({ account: data.customer }),
    // A lost lease aborts the call. The job fails, and is retried if it has attempts left.
    signal: lease.signal,
  })
  if (!answer.ok) throw new Error(`the gateway answered ${answer.status}`)
  await answer.text()
}

const worker = new Worker('exports', run, { connection, concurrency: 4 })
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
