// Charges and refunds come from two queues. No two jobs on one account run at once, on any host.
//
//   QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 QUEUE_URL=redis://… node worker.js

import { DelayedError, Worker } from 'bullmq'
import IORedis from 'ioredis'
import { Client, LockTimeoutError, QuorumError } from 'quorlock'

const RETRY = 500 // ms

const locks = new Client(undefined, { ttl: 5_000 }) // of the nodes in QUORLOCK_NODES
const connection = new IORedis(process.env.QUEUE_URL, { maxRetriesPerRequest: null })

/** Works on a job while it holds the lock; a job whose lock is taken comes back later. */
const exclusively = (resource, work) => async (job, token) => {
  let lease
  try {
    // Without waiting: other jobs can be worked on meanwhile.
    lease = await locks.lock(resource(job), { wait: 0 })
  } catch (error) {
    if (!(error instanceof LockTimeoutError || error instanceof QuorumError)) throw error
    // That is not a failed attempt of the job.
    await job.moveToDelayed(Date.now() + RETRY, token)
    throw new DelayedError()
  }
  try {
    const result = await work(job, lease)
    lease.check()
    return result
  } finally {
    await lease.release()
  }
}

async function book(job, lease) {
  const answer = await fetch(`${process.env.GATEWAY_URL}/bookings`, {
    method: 'POST',
    // BullMQ may run a job again whose worker died: then it has the same key.
    headers: { 'Idempotency-Key': `${job.queueName}-${job.id}` },
    body: JSON.stringify({ ...job.data, fence: lease.fence }),
    // A lost lease ends the call; the job fails, and is tried again if it has attempts left.
    signal: lease.signal,
  })
  if (!answer.ok) throw new Error(`the gateway answered ${answer.status}`)
}

const processor = exclusively((job) => `accounts:${job.data.account}`, book)
const options = { connection, concurrency: 4 }
const workers = ['charges', 'refunds'].map((queue) => new Worker(queue, processor, options))
for (const worker of workers) {
  worker.on('completed', (job) => console.log(`${worker.name} ${job.id} completed`))
  worker.on('failed', (job, error) => console.log(`${worker.name} ${job?.id} failed: ${error.message}`))
  worker.on('error', (error) => console.log(error.message))
}

process.once('SIGTERM', async () => {
  // Jobs under way are finished first.
  await Promise.all(workers.map((worker) => worker.close()))
  await locks.close()
  connection.disconnect()
})

await Promise.all(workers.map((worker) => worker.waitUntilReady()))
console.log('ready')
