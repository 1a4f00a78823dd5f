// The Node.js client of the chaos run; client.py describes what it does.

import { Client, LockTimeoutError, QuorumError } from 'quorlock'
import { once } from 'node:events'
import { openSync, writeSync } from 'node:fs'
import { connect } from 'node:net'
import { createInterface } from 'node:readline'
import { setTimeout as setTimer } from 'node:timers'
import { setTimeout as sleep } from 'node:timers/promises'

/** Milliseconds between two checks of a lease. */
const STEP = 20

const settings = JSON.parse(process.argv[2])
const client = new Client(settings.urls, {
  ttl: settings.ttl,
  restartGuard: settings.guard,
  nodeTimeout: settings.node_timeout,
  retryDelay: settings.retry_delay,
})
const history = openSync(settings.history, 'a')
let over = false
process.stdin.on('data', () => (over = true)).on('end', () => (over = true))

/** Returns CLOCK_MONOTONIC in nanoseconds; exact until an uptime of 104 days (2^53 ns). */
const now = () => Number(process.hrtime.bigint())
const choose = (from) => from[Math.floor(Math.random() * from.length)]

/** Appends a line with a single write, so a kill leaves no partial line. */
const record = (event, entry) => writeSync(history, JSON.stringify({ event, ...entry }) + '\n')

function look(event, lease, entry) {
  const at = now()
  const left = Math.floor(lease.remaining * 1e6)
  record(event, { token: lease.token, at, left, ...entry })
}

const register = connect(settings.register)
const pending = []
let asks = 0
createInterface(register).on('line', (line) => pending.shift()(JSON.parse(line)))
await once(register, 'connect')

/** Sends a request to the register. Returns the value, or undefined if the register refuses. */
async function send(lease, op, resource, value) {
  const request = { op, resource, fence: lease.fences[resource], value, client: settings.name }
  register.write(JSON.stringify(request) + '\n')
  const answer = await new Promise((resolve) => pending.push(resolve))
  if (answer.ok) return answer.value
  look('refused', lease, { resource })
}

/** Returns one resource, or two in random order. */
function chooseResources() {
  const one = choose(settings.resources)
  if (Math.random() >= settings.pairs) return [one]
  return [one, choose(settings.resources.filter((other) => other !== one))]
}

/** Acquires a lease, and sometimes cancels the wait. Returns undefined if it got no lease. */
async function acquire(ask, resources, options) {
  const controller = new AbortController()
  let timer
  if (Math.random() < settings.cancelled) {
    timer = setTimer(() => {
      record('cancel', { ask, at: now() })
      controller.abort()
    }, choose(settings.cancels))
  }
  try {
    return await client.lock(resources, { ...options, signal: controller.signal })
  } catch (error) {
    if (error === controller.signal.reason) {
      record('cancelled', { ask, at: now() })
    } else if (error instanceof LockTimeoutError || error instanceof QuorumError) {
      record('error', { ask, at: now(), code: error.code })
    } else {
      throw error
    }
  } finally {
    clearTimeout(timer)
  }
}

async function turn() {
  const resources = chooseResources()
  const extended = Math.random() < 0.5
  const wait = choose(settings.waits)
  const number = ++asks
  const asked = now()
  record('ask', { ask: number, resources, wait, at: asked })
  const lease = await acquire(number, resources, { wait, autoExtend: extended })
  if (lease === undefined) return
  look('granted', lease, { ask: number, resources, fences: lease.fences, extended, asked })
  const values = []
  for (const resource of resources) values.push(await send(lease, 'read', resource))
  if (!values.includes(undefined)) {
    for (let left = choose(settings.thinks); left > 0; left -= STEP) {
      await sleep(Math.min(STEP, left))
      look('look', lease)
    }
  }
  for (const [n, resource] of resources.entries()) {
    if (values[n] !== undefined) await send(lease, 'write', resource, values[n] + 1)
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
await client.close()
record('closed', { at: now() })
