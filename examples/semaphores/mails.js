// Sends mails through an API that accepts five requests per second, counted over all processes.
//
//   QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 \
//     GATEWAY_URL=http://127.0.0.1:8900 node mails.js

import { Client } from 'quorlock'

const client = new Client(undefined, { ttl: 3_000, wait: 60_000 }) // uses the nodes in QUORLOCK_NODES
// A permit that was released is free one second later.
const mails = client.semaphore('api:mails', { limit: 5, keep: 1_000 })

async function send(number) {
  await mails.using(async (lease) => {
    const request = { method: 'POST', body: JSON.stringify({ mail: number }), signal: lease.signal }
    const answer = await fetch(`${process.env.GATEWAY_URL}/mails`, request)
    if (!answer.ok) throw new Error(`the gateway answered ${answer.status}`)
    await answer.text()
  })
  console.log(`mail ${number} sent`)
}

await Promise.all(Array.from({ length: 10 }, (_, number) => send(number)))
await client.close()
