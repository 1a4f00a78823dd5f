// Elects a leader among several candidates. A leader that loses its lease becomes a candidate again.
//
//   QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 node leader.js

import { setTimeout } from 'node:timers/promises'
import { Client, LeaseLostError, QuorumError } from 'quorlock'

/** Calls `lead` whenever it is elected, until the signal aborts or `lead` returns. */
async function campaign(client, role, signal, lead) {
  // Wait for as long as another candidate leads, and lead without a time limit.
  const options = { wait: null, maxHold: null, signal }
  while (!signal.aborted) {
    try {
      return await client.using(`leader:${role}`, options, (lease) => {
        console.log(`elected with fence ${lease.fence}`)
        // The signal aborts when the lease ends, before another candidate can be elected.
        return lead(lease, AbortSignal.any([lease.signal, signal]))
      })
    } catch (error) {
      if (signal.aborted) return
      // Some functions reject with the reason of the signal, others have it as the cause.
      const reason = error.name === 'AbortError' ? error.cause : error
      if (reason instanceof LeaseLostError) {
        console.log(`stepped down: ${reason.message}`)
      } else if (reason instanceof QuorumError) {
        console.log(`no election: ${reason.message}`)
        await setTimeout(1_000, undefined, { signal }).catch(() => {})
      } else {
        throw error
      }
    }
  }
}

/** The work of the leader. */
async function lead(lease, signal) {
  for (;;) {
    await writeReport(lease.fence, signal)
    await setTimeout(200, undefined, { signal })
  }
}

async function writeReport(fence, signal) {
  signal.throwIfAborted()
  console.log(`wrote a report with fence ${fence}`)
}

const ending = new AbortController()
process.once('SIGTERM', () => ending.abort())

const client = new Client(undefined, { ttl: 3_000 })
await campaign(client, 'reports', ending.signal, lead)
// On SIGTERM the lease is released, so the next leader is elected immediately.
await client.close()
