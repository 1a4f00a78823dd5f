// Holds a lease, is stopped and continued, and says what it finds. See test_stopped.py.

import { once } from 'node:events'
import { Client } from 'quorlock'

const client = new Client(process.argv.slice(2), { ttl: 1_000 })
const lease = await client.lock('r')
const told = once(lease.signal, 'abort').then(() => true)
console.log(lease.fence)
// The line is there when this process is continued.
await once(process.stdin, 'data')
const { valid } = lease
console.log(JSON.stringify({ valid, told: await told, released: await lease.release() }))
await client.close()
process.stdin.destroy()
