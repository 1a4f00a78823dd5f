// quorlock in Node.js; see contender.py for what a contender does.

import { Client } from 'quorlock'
import { createInterface } from 'node:readline'

const client = new Client(process.argv.slice(2))

for await (const line of createInterface({ input: process.stdin })) {
  const { cycles, concurrency } = JSON.parse(line)
  const micros = []
  const began = performance.now()
  const loop = async (_, key) => {
    for (let cycle = 0; cycle < cycles; cycle++) {
      const start = performance.now()
      const lease = await client.lock(`node-${key}`)
      if (!(await lease.release())) throw new Error('not released')
      micros.push((performance.now() - start) * 1e3)
    }
  }
  await Promise.all(Array.from({ length: concurrency }, loop))
  console.log(JSON.stringify({ micros, seconds: (performance.now() - began) / 1e3 }))
}
await client.close()
