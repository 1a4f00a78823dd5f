// The Node.js client of test_languages.py and test_thawed.py: runs one JSON command per line of stdin.

import { Client } from 'quorlock'
import { createInterface } from 'node:readline'

const client = new Client(process.argv.slice(2), { retryDelay: [2, 10] })
const leases = {}

const hold = (resource, lease) => {
  leases[resource] = lease
  return { fence: lease.fence, token: lease.token, slots: lease.slots }
}

const commands = {
  lock: async ({ lock, options }) => hold(lock, await client.lock(lock, options)),
  permit: async ({ permit, options, as }) => hold(as, await client.semaphore(permit, options).acquire()),
  adopt: async ({ adopt, text }) => hold(adopt, await client.adopt(text)),
  detach: ({ detach, within }) => leases[detach].detach({ within }),
  extend: ({ extend }) => leases[extend].extend(),
  release: ({ release }) => leases[release].release(),
  locked: ({ locked }) => client.locked(locked),
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line)
  const [name] = Object.keys(command)
  const answer = await commands[name](command).then(
    (ok) => ({ ok }),
    (error) => ({ error: error.code, nodes: error.nodes }),
  )
  console.log(JSON.stringify(answer))
}
await client.close()
