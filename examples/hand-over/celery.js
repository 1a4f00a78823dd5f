// Sends tasks to the Celery workers of tasks.py, by version 2 of Celery's message protocol.

import { randomUUID } from 'node:crypto'
import IORedis from 'ioredis'

// While the broker is down, sending a task must fail, so that the request can be answered.
const options = { enableOfflineQueue: false, maxRetriesPerRequest: 1, lazyConnect: true }
const broker = new IORedis(process.env.BROKER_URL, options)
broker.on('error', (error) => console.warn(error.message))
await broker.connect()

export async function add(order, lease) {
  const id = randomUUID()
  const body = [[order, lease], {}, { callbacks: null, errbacks: null, chain: null, chord: null }]
  const message = {
    body: Buffer.from(JSON.stringify(body)).toString('base64'),
    'content-type': 'application/json',
    'content-encoding': 'utf-8',
    headers: {
      lang: 'js',
      task: 'tasks.ship_order',
      id,
      root_id: id,
      parent_id: null,
      group: null,
      // The text of the lease is a secret: hide it from monitors, which show the arguments of tasks.
      argsrepr: `(${order}, ...)`,
      kwargsrepr: '{}',
    },
    properties: {
      correlation_id: id,
      delivery_mode: 2,
      delivery_info: { exchange: '', routing_key: 'celery' },
      delivery_tag: randomUUID(),
      priority: 0,
      body_encoding: 'base64',
    },
  }
  await broker.lpush('celery', JSON.stringify(message))
}

export const close = () => broker.quit()
