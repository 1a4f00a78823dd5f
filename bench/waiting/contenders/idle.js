// Waiters that wait in vain, in Node.js. idle.py does the same in Python and describes the commands.

import { createInterface } from 'node:readline'
import { Client } from 'quorlock'

const client = new Client(process.argv.slice(2), { wait: null })
const warm = await client.lock('idle-warm')
await warm.release()
for await (const line of createInterface({ input: process.stdin })) {
  for (const resource of JSON.parse(line).wait ?? []) client.lock(resource).catch(() => {})
  const { user, system } = process.cpuUsage()
  console.log(JSON.stringify({ cpu: (user + system) / 1e6 }))
}
process.exit()
