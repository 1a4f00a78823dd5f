// Adds jobs for worker.js to a queue of BullMQ.

import { Queue } from 'bullmq'
import IORedis from 'ioredis'

// While the queue's server is down, adding a job must fail, so that the request can be answered.
const options = { enableOfflineQueue: false, maxRetriesPerRequest: 1 }
const connection = new IORedis(process.env.QUEUE_URL, options)
const queue = new Queue('shipments', { connection })
queue.on('error', (error) => console.warn(error.message))
await queue.waitUntilReady()

export async function add(order, lease) {
  // The text of the lease is a secret: remove jobs that nobody needs any more.
  const backoff = { type: 'exponential', delay: 500 }
  await queue.add('ship', { order, lease }, { attempts: 10, backoff, removeOnComplete: true })
}

export async function close() {
  await queue.close()
  connection.disconnect()
}
