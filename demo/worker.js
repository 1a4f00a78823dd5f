// A Node.js worker of the demo: several loops that fight for the lock. See run.py.

import { Client, LeaseLostError, LockTimeoutError, QuorumError } from 'quorlock'
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

const { urls, ledger, history, loops, locked } = JSON.parse(process.argv[2])
const client = new Client(urls, { ttl: 5_000, wait: 30_000, retryDelay: [2, 20] })
const now = () => Number(process.hrtime.bigint())
let running = true
process.on('SIGTERM', () => (running = false))

function record(entry) {
  appendFileSync(history, JSON.stringify(entry) + '\n')
}

/** Read, think, write: loses updates if anybody else does the same meanwhile. */
async function update() {
  const total = Number(readFileSync(ledger, 'utf8'))
  await sleep(1)
  writeFileSync(ledger, String(total + 1))
}

async function turn() {
  const asked = now()
  if (!locked) {
    await update()
    return record({ asked, from: asked, to: now(), fence: null })
  }
  const lease = await client.lock('ledger')
  const from = now()
  await update()
  record({ asked, from, to: now(), fence: lease.fence })
  lease.check()
  await lease.release()
}

async function loop() {
  while (running) {
    try {
      await turn()
    } catch (error) {
      if (error instanceof LockTimeoutError) record({ error: 'timeout' })
      else if (error instanceof QuorumError) record({ error: 'no quorum' })
      else if (error instanceof LeaseLostError) record({ error: 'lost' })
      else throw error
    }
    await sleep(1)
  }
}

await Promise.all(Array.from({ length: loops }, loop))
await client.close()
