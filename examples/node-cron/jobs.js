// Creates a report every night, on one of the hosts on which this runs.
//
//   QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 \
//     GATEWAY_URL=http://127.0.0.1:8900 node jobs.js

import cron from 'node-cron'
import { Client, LockTimeoutError } from 'quorlock'

const locks = new Client(undefined, { ttl: 5_000 }) // uses the nodes in QUORLOCK_NODES

async function report(lease) {
  const day = new Date().toISOString().slice(0, 10)
  const answer = await fetch(`${process.env.GATEWAY_URL}/reports`, {
    method: 'POST',
    headers: { 'Idempotency-Key': `report-${day}` },
    body: JSON.stringify({ day }),
    signal: lease.signal, // a lost lease aborts the call
  })
  if (!answer.ok) throw new Error(`the gateway answered ${answer.status}`)
  console.log(`report of ${day} created`)
}

async function once() {
  try {
    // The clocks of the hosts differ, so the lock stays held for a minute after the work.
    await locks.using('jobs:report', { wait: 0, keep: 60_000 }, report)
  } catch (error) {
    if (error instanceof LockTimeoutError) console.log('another host creates the report')
    else console.error(error)
  }
}

let run
const task = cron.schedule(process.env.SCHEDULE ?? '0 3 * * *', () => (run = once()), { timezone: 'UTC' })

process.once('SIGTERM', async () => {
  await task.destroy()
  await run // a running job is finished first
  await locks.close()
})
console.log('ready')
