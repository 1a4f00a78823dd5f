// A Node.js worker of the demo: several loops that compete for the lock. See run.py.

// A program that has installed the package imports 'quorlock'.
import { Client, LeaseLostError, LockTimeoutError, QuorumError } from '../bindings-node/index.mjs'
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

const { urls, counter, history, loops, locked } = JSON.parse(process.argv[2])
const client = new Client(urls, { ttl: 5_000, wait: 30_000, retryDelay: [2, 20] })
const now = () => Number(process.hrtime.bigint())
let running = true
process.on('SIGTERM', () => (running = false))
// The demo's end closes stdin, also if the demo is killed.
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

/**
 * Reads the counter, pauses, writes it plus one, and returns what it wrote. Loses updates if another process does the
 * same at the same time.
 */
async function update() {
  const total = Number(readFileSync(counter, 'utf8')) + 1
  await sleep(1)
  writeFileSync(counter, String(total))
  return total
}

async function turn(asked) {
  if (!locked) {
    const entry = begin(asked)
    const wrote = await update()
    return record({ ...entry, wrote, to: now() })
  }
  const lease = await client.lock('counter')
  const entry = begin(asked, lease)
  const wrote = await update()
  record({ ...entry, wrote, to: now() })
  lease.check()
  await lease.release()
}

async function loop() {
  while (running) {
    const asked = now()
    const failed = (error) => record({ asked, at: now(), error })
    try {
      await turn(asked)
    } catch (error) {
      if (error instanceof LockTimeoutError) failed('timeout')
      else if (error instanceof QuorumError) failed('no quorum')
      else if (error instanceof LeaseLostError) failed('lost')
      else throw error
    }
    await sleep(1)
  }
}

await Promise.all(Array.from({ length: loops }, loop))
await client.close()
process.stdin.destroy()
