// The Node.js process of test_limit.py: acquires permits again and again, and records who holds them.

import { Client } from 'quorlock'
import { appendFileSync } from 'node:fs'

const [record, rounds, limit, ...urls] = process.argv.slice(2)
const client = new Client(urls, { ttl: 60_000, wait: null })
const semaphore = client.semaphore('api', { limit: Number(limit) })

async function work() {
  for (let round = 0; round < Number(rounds); round++) {
    await semaphore.using(async ({ slot, fence }) => {
      // Lines that are appended to a file by several processes are not mixed.
      appendFileSync(record, `begin ${slot} ${fence}\n`)
      await new Promise((resolve) => setTimeout(resolve, 2))
      appendFileSync(record, `end ${slot} ${fence}\n`)
    })
  }
}

await Promise.all([work(), work(), work()])
await client.close()
