// Processes charges and refunds from two queues. Only one job per account runs at a time, on all hosts.
//
//   QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 \
//     GATEWAY_URL=http://127.0.0.1:8900 QUEUE_URL=redis://127.0.0.1:6379 node worker.js

import { DelayedError, Worker } from 'bullmq'
import IORedis from 'ioredis'
import { Client, LockTimeoutError, QuorumError } from 'quorlock'

const RETRY = 500 // ms

const locks = new Client(undefined, { ttl: 5_000 }) // uses the nodes in QUORLOCK_NODES
const connection = new IORedis(process.env.QUEUE_URL, { maxRetriesPerRequest: null })

/** Runs a job while it holds the lock. If the lock is held by another job, the job is retried later. */
const exclusively = (resource, work) => async (job, token) => {
  let lease
  try {
    // Do not wait: the worker can run other jobs meanwhile.
    lease = await locks.lock(resource(job), { wait: 0 })
  } catch (error) {
    if (!(error instanceof LockTimeoutError || error instanceof QuorumError)) throw error
    // Delaying the job does not count as a failed attempt.
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
    // BullMQ runs a job again if its worker dies. It then has the same key.
    headers: { 'Idempotency-Key': `${job.queueName}-${job.id}` },
    body: JSON.stringify({ ...job.data, fence: lease.fence }),
    // A lost lease aborts the call. The job fails, and is retried if it has attempts left.
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
  // Running jobs are finished first.
  await Promise.all(workers.map((worker) => worker.close()))
  await locks.close()
  connection.disconnect()
})

await Promise.all(workers.map((worker) => worker.waitUntilReady()))
console.log('ready')
