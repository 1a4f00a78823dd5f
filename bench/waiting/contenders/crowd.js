// Many waiters in one process, in Node.js. crowd.py does the same in Python and describes the commands.

import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { Client } from 'quorlock'

const HOLD = 1

const client = new Client(process.argv.slice(2), { wait: null })

async function turn(resource) {
  const lease = await client.lock(resource)
  await sleep(HOLD)
  await lease.release()
}

await turn('crowd-warm')
let turns = []
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line)
  if (command.wait) turns = Array.from({ length: command.wait }, () => turn(command.resource))
  if (command.finish) await Promise.all(turns)
  console.log('{}')
}
await client.close()
