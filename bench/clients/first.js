// Prints how many microseconds the first lock of a process takes, including creating the client.

import { Client } from 'quorlock'

const start = performance.now()
const client = new Client(process.argv.slice(2))
const lease = await client.lock('first')
console.log((performance.now() - start) * 1e3)
await lease.release()
await client.close()
