// The contender quorlock in Node.js. bench/README.md describes the protocol of contenders.

import { Client } from 'quorlock'
import { createInterface } from 'node:readline'

const client = new Client(process.argv.slice(2), { autoExtend: false })

async function run({ cycles, concurrency }) {
  const micros = []
  const began = performance.now()
  const cpu = process.cpuUsage()
  const loop = async (_, key) => {
    for (let cycle = 0; cycle < cycles; cycle++) {
      const start = performance.now()
      const lease = await client.lock(`quorlock Node.js-${key}`)
      if (!(await lease.release())) throw new Error('not released')
      micros.push((performance.now() - start) * 1e3)
    }
  }
  await Promise.all(Array.from({ length: concurrency }, loop))
  const { user, system } = process.cpuUsage(cpu)
  return { micros, seconds: (performance.now() - began) / 1e3, cpu: (user + system) / 1e6 }
}

for await (const line of createInterface({ input: process.stdin })) {
  const answer = await run(JSON.parse(line)).catch((error) => ({ error: String(error) }))
  console.log(JSON.stringify(answer))
}
await client.close()
