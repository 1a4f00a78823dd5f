// Reads a report from a cache. If it is not there, one process of all computes it.
//
//   QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 \
//     CACHE_URL=redis://127.0.0.1:6379 GATEWAY_URL=http://127.0.0.1:8900 node cache.js sales

import IORedis from 'ioredis'
import { Client, LockTimeoutError, QuorumError } from 'quorlock'

const FRESH = 60 // seconds

const locks = new Client(undefined, { ttl: 5_000 }) // uses the nodes in QUORLOCK_NODES
const cache = new IORedis(process.env.CACHE_URL)

async function cached(key, compute) {
  const found = await cache.get(key)
  if (found !== null) return found
  let lease
  try {
    lease = await locks.lock(`cache:${key}`, { wait: 10_000 })
  } catch (error) {
    if (!(error instanceof LockTimeoutError || error instanceof QuorumError)) throw error
    return compute(key) // without the lock, the value is only more expensive
  }
  try {
    // Another process may have computed it while this one waited.
    const found = await cache.get(key)
    if (found !== null) return found
    const computed = await compute(key)
    await cache.set(key, computed, 'EX', FRESH)
    return computed
  } finally {
    await lease.release()
  }
}

async function report(key) {
  const answer = await fetch(`${process.env.GATEWAY_URL}/${key}`, { method: 'POST', body: '{}' })
  if (!answer.ok) throw new Error(`the gateway answered ${answer.status}`)
  return `computed at ${new Date().toISOString()}`
}

console.log(await cached(process.argv[2], report))
cache.disconnect()
await locks.close()
