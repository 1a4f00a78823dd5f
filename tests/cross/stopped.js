// Holds a lease while the test suspends and resumes this process, and prints the state of the
// lease. See test_stopped.py.

import { once } from 'node:events'
import { Client } from 'quorlock'

const client = new Client(process.argv.slice(2), { ttl: 1_000 })
const lease = await client.lock('r')
const lost = once(lease.signal, 'abort').then(() => true)
console.log(lease.fence)
// The test suspends this process here, and writes a line to its stdin before resuming it.
await once(process.stdin, 'data')
const { valid } = lease
console.log(JSON.stringify({ valid, lost: await lost, released: await lease.release() }))
await client.close()
process.stdin.destroy()
