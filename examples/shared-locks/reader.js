// Reads settings that another program rewrites. Any number of readers run at the same time.
//
//   QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 SETTINGS=/tmp/settings node reader.js

import { readFile } from 'node:fs/promises'
import { setTimeout } from 'node:timers/promises'
import { Client } from 'quorlock'

const read = async (name) => {
  const text = await readFile(`${process.env.SETTINGS}/${name}.json`, 'utf8')
  return JSON.parse(text).revision
}

const ending = new AbortController()
process.once('SIGTERM', () => ending.abort())

const client = new Client(undefined, { ttl: 3_000 })
while (!ending.signal.aborted) {
  const [prices, taxes] = await client.using('settings', { mode: 'shared' }, async () => [
    await read('prices'),
    await read('taxes'),
  ])
  console.log(`prices=${prices} taxes=${taxes}`)
  await setTimeout(10)
}
await client.close()
