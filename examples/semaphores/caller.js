// Calls an API that allows four calls at a time, counted over all processes, hosts and languages.
//
//   QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 \
//     GATEWAY_URL=http://127.0.0.1:8900 node caller.js

import { Client, LeaseLostError, LockTimeoutError } from 'quorlock'

const LIMIT = 4 // the same in caller.py
const TASKS = 3

const client = new Client(undefined, { ttl: 3_000, wait: 30_000 }) // uses the nodes in QUORLOCK_NODES
const stripe = client.semaphore('api:stripe', { limit: LIMIT })
let isStopping = false
process.once('SIGTERM', () => (isStopping = true))

async function charge(key) {
  // Hold the permit for the call only, and until its body has been read. If the lease is lost, the signal aborts the call.
  await stripe.using(async (lease) => {
    const answer = await fetch(`${process.env.GATEWAY_URL}/charges`, {
      method: 'POST',
      headers: { 'Idempotency-Key': key },
      body: JSON.stringify({ account: 'stripe', amount: 100 }),
      signal: lease.signal,
    })
    if (!answer.ok) throw new Error(`the gateway answered ${answer.status}`)
    await answer.text()
  })
}

async function work(task) {
  for (let number = 1; !isStopping; number += 1) {
    const key = `node-${process.pid}-${task}-${number}`
    try {
      await charge(key)
      console.log(`${key} done`)
    } catch (error) {
      if (error instanceof LockTimeoutError) console.log(`${key} waited too long: ${error.message}`)
      else if (error instanceof LeaseLostError)
        console.log(`${key} was cut off, and may have had its effect: ${error.message}`)
      else throw error
    }
  }
}

await Promise.all(Array.from({ length: TASKS }, (_, task) => work(task)))
await client.close()
