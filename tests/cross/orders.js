// Locks several resources repeatedly, and increments a counter for each. See test_orders.py.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Client } from 'quorlock'

const { folder, resources, urls, wait, turns } = JSON.parse(process.argv[2])
const client = new Client(urls, { ttl: 60_000, wait: wait * 1000 })
console.log('ready')
await once(process.stdin, 'data')
process.stdin.destroy()
for (let turn = 0; turn < turns; turn++) {
  await client.using(resources, async (lease) => {
    const files = Object.entries(lease.fences).map(([name, fence]) => ({ file: join(folder, name), fence }))
    const seen = files.map(({ file }) => JSON.parse(readFileSync(file, 'utf8')))
    await new Promise(setImmediate)
    for (const [index, { file, fence }] of files.entries()) {
      assert(fence > seen[index].fence, `${file}: ${fence} after ${seen[index].fence}`)
      writeFileSync(file, JSON.stringify({ count: seen[index].count + 1, fence }))
    }
  })
}
await client.close()
