// The Node.js worker of test_rolling.py; see rolling.py.

import { Client, LeaseLostError, LockTimeoutError, QuorumError } from 'quorlock'
import { appendFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

const { urls, ttl, guard, history, name, others } = JSON.parse(process.argv[2])
const client = new Client(urls, {
  ttl,
  restartGuard: guard,
  nodeTimeout: 1000,
  retryDelay: [2, 20],
  wait: 30_000,
})
const now = () => Number(process.hrtime.bigint())
const record = (entry) => appendFileSync(history, JSON.stringify(entry) + '\n')
let over = false

const held = await client.lock(name)
record({ held: held.token, at: now() })
process.stdin.on('end', () => (over = true)).resume()

async function intrude() {
  while (!over) {
    for (const other of others) {
      const lease = await client.lock(other, { wait: 0 }).catch((error) => {
        if (!(error instanceof LockTimeoutError || error instanceof QuorumError)) throw error
      })
      if (!lease) continue
      record({ intruded: other, at: now() })
      await lease.release()
    }
    await sleep(20)
  }
}

async function takeTurns() {
  while (!over) {
    let fence
    try {
      await client.using('turns', async (lease) => {
        fence = lease.fence
        const begun = now()
        await sleep(3)
        lease.check()
        record({ begun, ended: now(), fence })
      })
    } catch (error) {
      if (!(error instanceof LeaseLostError)) throw error
      record({ lost: fence })
    }
    await sleep(1)
  }
}

await Promise.all([intrude(), takeTurns()])
const at = now()
record({ kept: held.valid && (await held.release()), at })
await client.close()
