// Elects a leader among several candidates. A leader that loses its lease becomes a candidate again.
//
//   QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 node leader.js

import { subscribe } from 'node:diagnostics_channel'
import { setTimeout } from 'node:timers/promises'
import { Client } from 'quorlock'

/** The work of the leader. The signal aborts when the lease ends, before another candidate can be elected. */
async function lead(lease, signal) {
  console.log(`elected with fence ${lease.fence}`)
  lease.signal.addEventListener('abort', () => console.log(`stepped down: ${lease.signal.reason.message}`))
  for (;;) {
    await writeReport(lease.fence, signal)
    await setTimeout(200, undefined, { signal })
  }
}

async function writeReport(fence, signal) {
  signal.throwIfAborted()
  console.log(`wrote a report with fence ${fence}`)
}

// Shows warnings, such as those of an outage.
subscribe('quorlock:warn', ({ message }) => console.log(message))
const ending = new AbortController()
process.once('SIGTERM', () => ending.abort())

const client = new Client(undefined, { ttl: 3_000 })
try {
  await client.elect('leader:reports', { signal: ending.signal }, lead)
} catch (error) {
  if (!ending.signal.aborted) throw error
} finally {
  // On SIGTERM the lease is released, so the next leader is elected immediately.
  await client.close()
}
