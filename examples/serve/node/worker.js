// Waits for the payment of an order, and records it. One worker at a time handles an order, whatever its language.
//
//   QUORLOCK_SOCKET=/run/quorlock/quorlock.sock SHOP_URL=redis://127.0.0.1:6379 node worker.js 42

import { readFileSync } from 'node:fs'
import Redis from 'ioredis'

const order = process.argv[2]
const write = readFileSync('../write.lua', 'utf8')
const shop = new Redis(process.env.SHOP_URL)
// A lease belongs to a connection. One that ioredis opens by itself has no lease, so do not reconnect. While LOCK waits,
// other commands of the same connection wait too: use a connection for each worker.
const locks = new Redis(process.env.QUORLOCK_SOCKET, { retryStrategy: null })

async function handle() {
  const [lease, fence] = await locks.call('LOCK', `orders:${order}`, 'WAIT', 1000)
  console.log(`order ${order} locked, fence ${fence}`)
  await shop.blpop(`payments:${order}`, 0)
  await locks.call('CHECK', lease) // throws if the lease was lost
  if (!(await shop.eval(write, 1, `order:${order}`, fence, 'paid'))) throw new Error('a later worker has written')
  console.log(`order ${order} paid`)
  await locks.call('UNLOCK', lease)
}

try {
  await handle()
} catch (error) {
  if (!error.message.startsWith('TIMEOUT ')) throw error
  console.log(`order ${order} is being handled`)
}
locks.disconnect()
shop.disconnect()
