// Many waiters in one process, in Node.js. waiters.py does the same in Python and describes the requests.

import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { Client } from 'quorlock'

const client = new Client(process.argv.slice(2), { wait: null })

async function turn(resource) {
  const lease = await client.lock(resource)
  await sleep(1)
  await lease.release()
}

await turn('Node.js-warm')
const turns = []
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line)
  const started = (request.wait ?? []).map(turn)
  for (const each of started) each.catch(() => {}) // only "finish" reports it
  turns.push(...started)
  if (request.finish) await Promise.all(turns)
  const { user, system } = process.cpuUsage()
  console.log(JSON.stringify({ cpu: (user + system) / 1e6 }))
}
// Some waiters may never end.
process.exit()
