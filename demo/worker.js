// A Node.js worker of the demo: several loops that compete for the lock. See run.py.

// A program that has installed the package imports 'quorlock'.
import { Client, LeaseLostError, LockTimeoutError, QuorumError } from '../bindings-node/index.js'
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

const { urls, counter, history, loops, locked } = JSON.parse(process.argv[2])
const client = new Client(urls, { ttl: 5_000, wait: 30_000, retryDelay: [2, 20] })
const now = () => Number(process.hrtime.bigint())
let running = true
process.on('SIGTERM', () => (running = false))
// stdin ends when the demo ends, for whatever reason.
process.stdin.on('end', () => (running = false)).resume()

function record(entry) {
  appendFileSync(history, JSON.stringify(entry) + '\n')
}

/** Returns the entry for an update that begins now. Times are nanoseconds of CLOCK_MONOTONIC. */
function begin(asked, lease) {
  const from = now()
  const held = lease && { valid_until: from + Math.floor(lease.remaining * 1e6), fence: lease.fence }
  return { asked, from, ...held }
}

/** Reads the counter, pauses and writes it plus one. Loses updates if another process does so at the same time. */
async function update() {
  const total = Number(readFileSync(counter, 'utf8'))
  await sleep(1)
  writeFileSync(counter, String(total + 1))
}

async function turn() {
  const asked = now()
  if (!locked) {
    const entry = begin(asked)
    await update()
    return record({ ...entry, to: now() })
  }
  const lease = await client.lock('counter')
  const entry = begin(asked, lease)
  await update()
  record({ ...entry, to: now() })
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
process.stdin.destroy()
