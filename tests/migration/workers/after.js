// A service in Node.js after its migration: `after.js SETTINGS`. See ../test_roll_over.py.

import { Client } from 'quorlock'
import turns from './turns.cjs'

const { settings, takeTurns } = turns

const client = new Client(settings.urls, {
  keyPrefix: settings.prefix,
  ttl: settings.ttl,
  wait: null,
  // Long, so that a loaded machine does not cause timeouts.
  nodeTimeout: 5_000,
  connectTimeout: 20_000,
})

await takeTurns((turn) => client.using('orders', (lease) => turn(lease.fence)))
await client.close()
