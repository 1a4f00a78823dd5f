// A process that contends for a lock, in Node.js. worker.py does the same in Python and describes the
// commands.

import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { Client } from 'quorlock'

const TTL = 10_000
const GRACE = 2_000

const now = () => Number(process.hrtime.bigint())

// Each function opens a client. Its `take` waits for the lock, and returns a function that releases it.
const libraries = {
  quorlock(urls) {
    const client = new Client(urls, { ttl: TTL, wait: null })
    const take = async (resource) => {
      const lease = await client.lock(resource)
      return async () => {
        if (!(await lease.release())) throw new Error('the release was not confirmed')
      }
    }
    return { take, close: () => client.close() }
  },
}

// Only require() finds the peers through NODE_PATH.
const open = (library, urls, tuned) =>
  libraries[library]?.(urls) ??
  createRequire(import.meta.url)('./peers.cjs')[library](urls, tuned, TTL)

async function loop({ take }, client, command, record, waitingSince) {
  const { run: resource, start, until, hold, once } = command
  const failed = (error) => {
    record.failures++
    record.failure = String(error)
  }
  await sleep(Math.max(0, (start - now()) / 1e6))
  for (let called; (called = now()) < until; ) {
    waitingSince.set(client, called)
    let release
    while (!release) {
      try {
        release = await take(resource)
      } catch (error) {
        failed(error) // for example, some libraries give up after a time
        const ended = now()
        if (ended < until) continue
        record.unfinished.push([called, ended])
        waitingSince.delete(client)
        return
      }
    }
    const acquired = now()
    waitingSince.delete(client)
    await sleep(hold * 1e3)
    const releasing = now()
    await release().catch(failed)
    record.turns.push([client, called, acquired, releasing, now()])
    if (once) return
  }
}

async function run(command) {
  const record = { turns: [], failures: 0, failure: '', unfinished: [], stuck: true }
  const waitingSince = new Map()
  const loops = opened.map((contender, client) =>
    loop(contender, client, command, record, waitingSince),
  )
  const ended = Promise.all(loops).then(() => (record.stuck = false))
  const alarm = new AbortController()
  const late = sleep((command.until - now()) / 1e6 + GRACE, undefined, alarm)
  await Promise.race([ended, late])
  late.catch(() => {})
  alarm.abort()
  for (const called of waitingSince.values()) record.unfinished.push([called, now()])
  return record
}

let opened = []

async function answer(command) {
  if (command.open) {
    const { open: library, urls, tuned, clients, warm } = command
    for (let number = 0; number < clients; number++) {
      const contender = open(library, urls, tuned)
      opened.push(contender)
      await (await contender.take(`${warm}-${number}`))()
    }
    return {}
  }
  if (command.run) return run(command)
  if (command.close) {
    await Promise.all(opened.map((contender) => contender.close()))
    opened = []
    return {}
  }
  throw new Error('unknown command')
}

for await (const line of createInterface({ input: process.stdin })) {
  const result = await answer(JSON.parse(line)).catch((error) => ({ error: String(error) }))
  console.log(JSON.stringify(result))
}
