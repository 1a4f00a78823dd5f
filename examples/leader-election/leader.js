// A leader among several candidates. When it loses the lease it is a candidate again.
//
//   QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 node leader.js

import { setTimeout } from 'node:timers/promises'
import { Client, LeaseLostError, QuorumError } from 'quorlock'

/** Leads whenever it is elected, until the signal aborts or `lead` returns. */
async function campaign(client, role, signal, lead) {
  // It waits for as long as another one leads, and may lead for ever.
  const options = { wait: null, maxHold: null, signal }
  while (!signal.aborted) {
    try {
      return await client.using(`leader:${role}`, options, (lease) => {
        console.log(`elected with fence ${lease.fence}`)
        // It aborts when the lease ends, before another one can be elected.
        return lead(lease, AbortSignal.any([lease.signal, signal]))
      })
    } catch (error) {
      if (signal.aborted) return
      // Some functions reject with the signal's reason, others name it as the cause.
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

/** What only the leader does. */
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
// It leaves office when it is asked to end, and the next one is elected at once.
await client.close()
