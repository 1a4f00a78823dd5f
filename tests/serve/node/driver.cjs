// The driver of ioredis: `driver.cjs SOCKET`. ../clients.py describes the protocol.
const readline = require('node:readline')
const Redis = require('ioredis')

const client = new Redis(process.argv[2], { retryStrategy: null, maxRetriesPerRequest: 0 })
client.on('error', () => {}) // each command reports it

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const reply = await client.call(...line.split('\t')).catch((error) => ({ error: error.message }))
    console.log(JSON.stringify(reply))
  }
  client.disconnect()
}

main()
