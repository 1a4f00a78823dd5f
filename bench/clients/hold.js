// Holds leases. bench/holders.py describes the protocol. Run it with --expose-gc.

import { Client } from 'quorlock'
import { createInterface } from 'node:readline'
import { setTimeout } from 'node:timers/promises'

const BATCH = 100
const client = new Client(process.argv.slice(2))

async function acquire(count, ttl) {
  const leases = []
  for (let first = 0; first < count; first += BATCH) {
    const length = Math.min(BATCH, count - first)
    const lock = (_, index) => client.lock(`Node.js-held-${first + index}`, { ttl })
    leases.push(...(await Promise.all(Array.from({ length }, lock))))
  }
  return leases
}

// Allocates what a client needs only once, so that it is not counted for the leases.
for (const lease of await acquire(BATCH, 60_000)) await lease.release()

let leases = []
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line)
  const answer = {}
  if ('hold' in request) {
    const began = performance.now()
    leases = await acquire(request.hold, request.ttl * 1e3)
    answer.seconds = (performance.now() - began) / 1e3
  } else if ('rest' in request) {
    const began = performance.now()
    const before = process.cpuUsage()
    await setTimeout(request.rest * 1e3)
    const { user, system } = process.cpuUsage(before)
    answer.seconds = (performance.now() - began) / 1e3
    answer.cpu = (user + system) / 1e6
    answer.valid = leases.every((lease) => lease.valid)
  }
  globalThis.gc()
  console.log(JSON.stringify(answer))
}
await client.close()
