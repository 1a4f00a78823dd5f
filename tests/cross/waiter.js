// Waits for the lock, and writes its name when it has it. See test_turns.py.

import { appendFileSync } from 'node:fs'
import { Client } from 'quorlock'

const { name, order, urls, ...settings } = JSON.parse(process.argv[2])
const patience = settings.patience * 1000
const client = new Client(urls, { ttl: patience, wait: patience, retryDelay: [patience, patience] })
await client.using('r', () => appendFileSync(order, `${name}\n`))
await client.close()
