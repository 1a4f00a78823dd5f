// Waits for the lock, then appends the name of this process to a file. See test_turns.py.

import { appendFileSync } from 'node:fs'
import { Client } from 'quorlock'

const { name, order, urls, ...settings } = JSON.parse(process.argv[2])
const time = settings.seconds * 1000
const client = new Client(urls, { ttl: time, wait: time, retryDelay: [time, time] })
await client.using('r', () => appendFileSync(order, `${name}\n`))
await client.close()
