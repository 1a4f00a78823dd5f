// Checks that the npm package can be imported and locks. Needs no server.

import assert from 'node:assert/strict'
import { Client, LockTimeoutError } from 'quorlock'

const client = new Client(['memory://a', 'memory://b', 'memory://c'])
await client.using('smoke', async (lease) => {
  assert(lease.valid && lease.fence > 0)
  await assert.rejects(client.lock('smoke', { wait: 0 }), LockTimeoutError)
})
await (await client.lock('smoke', { wait: 0 })).release()
await client.close()
