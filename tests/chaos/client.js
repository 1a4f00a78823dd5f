// The Node.js client of the chaos run; client.py says what it does.

import { Client, LockTimeoutError, QuorumError } from 'quorlock'
import { once } from 'node:events'
import { openSync, writeSync } from 'node:fs'
import { connect } from 'node:net'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'

/** Milliseconds between two looks at a lease. */
const STEP = 20

const settings = JSON.parse(process.argv[2])
const client = new Client(settings.urls, {
  ttl: settings.ttl,
  restartGuard: settings.guard,
  nodeTimeout: settings.node_timeout,
  retryDelay: [2, 20],
})
const history = openSync(settings.history, 'a')
let over = false
process.stdin.on('end', () => (over = true)).resume()

/** Nanoseconds of CLOCK_MONOTONIC: below 2^53 until the machine has been up for 104 days. */
const now = () => Number(process.hrtime.bigint())
const choose = (from) => from[Math.floor(Math.random() * from.length)]

/** One write to a file in append mode: a kill loses whole lines, and never mixes them. */
const record = (event, entry) => writeSync(history, JSON.stringify({ event, ...entry }) + '\n')

function look(event, lease, entry) {
  const at = now()
  const left = Math.floor(lease.remaining * 1e6)
  record(event, { token: lease.token, at, left, ...entry })
}

const register = connect(settings.register)
const asking = []
createInterface(register).on('line', (line) => asking.shift()(JSON.parse(line)))
await once(register, 'connect')

/** What the register answers; undefined if it refuses. */
async function ask(lease, op, value) {
  const [resource] = lease.resources
  const request = { op, resource, fence: lease.fence, value, client: settings.name }
  register.write(JSON.stringify(request) + '\n')
  const answer = await new Promise((resolve) => asking.push(resolve))
  if (answer.ok) return answer.value
  look('refused', lease)
}

async function turn() {
  const resource = choose(settings.resources)
  const extended = Math.random() < 0.5
  const asked = now()
  let lease
  try {
    lease = await client.lock(resource, { wait: choose(settings.waits), autoExtend: extended })
  } catch (error) {
    if (!(error instanceof LockTimeoutError || error instanceof QuorumError)) throw error
    record('error', { resource, asked, at: now(), code: error.code })
    return
  }
  look('granted', lease, { resource, fence: lease.fence, extended, asked })
  const value = await ask(lease, 'read')
  if (value !== undefined) {
    for (let left = choose(settings.thinks); left > 0; left -= STEP) {
      await sleep(Math.min(STEP, left))
      look('look', lease)
    }
    await ask(lease, 'write', value + 1)
  }
  record('release', { token: lease.token, at: now() })
  const ok = await lease.release()
  record('released', { token: lease.token, at: now(), ok })
}

async function loop() {
  while (!over) {
    await turn()
    await sleep(choose(settings.pauses))
  }
}

await Promise.all(Array.from({ length: settings.loops }, loop))
register.end()
