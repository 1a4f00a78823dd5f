// The Node.js client of the chaos run; client.py describes what it does.

import { Client, ClosedError, LeaseLostError, LockTimeoutError, QuorumError } from 'quorlock'
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

/** Sends a request to the register, and returns its answer. */
function ask(request) {
  register.write(JSON.stringify({ ...request, client: settings.name }) + '\n')
  return new Promise((resolve) => pending.push(resolve))
}

const sharedOf = (lease) => lease.resources.filter((resource) => lease.modes[resource] === 'shared')

/** Reads or writes a value. Returns the value, or undefined if the register refuses. */
async function send(lease, op, resource, value) {
  const answer = await ask({ op, resource, fence: lease.fences[resource], mode: lease.modes[resource], value })
  if (answer.ok) return answer.value
  look('refused', lease, { resource })
}

/** Returns one resource, or two in random order. */
function chooseResources() {
  const one = choose(settings.resources)
  if (Math.random() >= settings.pairs) return [one]
  return [one, choose(settings.resources.filter((other) => other !== one))]
}

/** Returns the options of a lease that is renewed as the history says. */
function renewal(extended) {
  return { autoExtend: Boolean(extended), heartbeatTimeout: typeof extended === 'number' ? extended : null }
}

/** Begins to acquire or to adopt what a turn wants. */
function begin({ resources, text, permits }, options, signal) {
  if (text) return client.adopt(text, { ...options, signal })
  if (permits === undefined) return client.lock(resources, { ...options, signal })
  const semaphore = client.semaphore(settings.pool, { ...options, limit: settings.limit, permits })
  return semaphore.acquire({ signal })
}

/** Acquires or adopts a lease, and sometimes cancels that. Returns undefined if it got no lease. */
async function acquire(number, what, options) {
  const { giver, text } = what
  const controller = new AbortController()
  let timer
  if (Math.random() < settings.cancelled) {
    timer = setTimer(() => {
      record('cancel', { ask: number, at: now(), giver })
      controller.abort()
    }, choose(settings.cancels))
  }
  try {
    return await begin(what, options, controller.signal)
  } catch (error) {
    // A lease cannot be adopted if another client was faster, or if it has expired.
    const expected = [LockTimeoutError, QuorumError, ...(text ? [LeaseLostError] : [])]
    if (error === controller.signal.reason) {
      record('cancelled', { ask: number, at: now(), giver })
    } else if (expected.some((kind) => error instanceof kind)) {
      record('error', { ask: number, at: now(), giver, code: error.code })
    } else {
      throw error
    }
  } finally {
    clearTimeout(timer)
  }
}

/** Detaches the lease, sometimes, and leaves it at the register. Returns whether it did. */
async function handOver(lease, resources) {
  if (Math.random() >= settings.detaching) return false
  const within = choose(settings.withins)
  record('detach', { token: lease.token, at: now(), within })
  let text
  try {
    text = await lease.detach({ within })
  } catch (error) {
    if (!(error instanceof QuorumError || error instanceof LeaseLostError)) throw error
    record('detached', { token: lease.token, at: now(), ok: false })
    return false
  }
  record('detached', { token: lease.token, at: now(), ok: true })
  await ask({ op: 'offer', text, giver: lease.token, resources, shared: sharedOf(lease) })
  return true
}

async function turn() {
  const offer = Math.random() < settings.adopting ? await ask({ op: 'take' }) : {}
  const { giver, resources = chooseResources() } = offer
  const extended = choose(settings.renewals)
  const wait = choose(settings.waits)
  const number = ++asks
  const asked = now()
  record('ask', { ask: number, resources, wait, at: asked, giver })
  const mode = Object.fromEntries(resources.filter(() => Math.random() < settings.sharing).map((name) => [name, 'shared']))
  const options = { wait, ...renewal(extended), ...(offer.text ? {} : { mode }) }
  let lease = await acquire(number, { ...offer, resources }, options)
  if (lease === undefined) return
  const granted = { resources, extended }
  look('granted', lease, { ...granted, ask: number, fences: lease.fences, shared: sharedOf(lease), asked, giver })
  await write(lease)
  lease = await change(lease, granted)
  if (await handOver(lease, resources)) return
  record('release', { token: lease.token, at: now() })
  const ok = await lease.release()
  record('released', { token: lease.token, at: now(), ok })
}

/** Reads all resources, pauses, and writes those that the lease holds exclusively. */
async function write(lease) {
  const values = []
  for (const resource of lease.resources) values.push(await send(lease, 'read', resource))
  if (!values.includes(undefined)) {
    for (let left = choose(settings.thinks); left > 0; left -= STEP) {
      await sleep(Math.min(STEP, left))
      look('look', lease)
    }
  }
  for (const [n, resource] of lease.resources.entries()) {
    const writes = values[n] !== undefined && lease.modes[resource] === 'exclusive'
    if (writes) await send(lease, 'write', resource, values[n] + 1)
  }
}

/** Changes the mode of the lease, sometimes. Returns the lease to go on with. */
async function change(lease, granted) {
  if (Math.random() >= settings.changing) return lease
  const what = lease.mode === 'shared' ? 'upgrade' : 'downgrade'
  record(what, { token: lease.token, at: now() })
  const failed = (error) => {
    if (!(error instanceof QuorumError || error instanceof LeaseLostError)) throw error
    return error.code
  }
  if (what === 'downgrade') {
    const code = await lease.downgrade().catch(failed)
    if (code === undefined) await write(lease)
    return lease
  }
  const number = ++asks
  const asked = now()
  record('ask', { ask: number, resources: granted.resources, wait: 0, at: asked })
  let code = 'TIMEOUT'
  const upgraded = await lease.tryUpgrade().catch((error) => {
    code = failed(error)
    return null
  })
  look('upgraded', lease, { ok: upgraded !== null })
  if (upgraded === null) {
    record('error', { ask: number, at: now(), code })
    return lease
  }
  look('granted', upgraded, { ...granted, ask: number, fences: upgraded.fences, shared: [], asked })
  await write(upgraded)
  return upgraded
}

/** Acquires permits, and holds them for a while. */
async function usePermits() {
  const extended = choose(settings.renewals)
  const wait = choose(settings.waits)
  const permits = choose(settings.permits)
  const number = ++asks
  const asked = now()
  record('ask', { ask: number, resources: [settings.pool], wait, at: asked })
  const lease = await acquire(number, { permits }, { wait, ...renewal(extended) })
  if (lease === undefined) return
  const fences = Object.fromEntries(lease.slots.map((slot) => [`${settings.pool} ${slot}`, lease.fence]))
  const granted = { resources: Object.keys(fences), fences, shared: [], extended, permits }
  look('granted', lease, { ...granted, ask: number, asked })
  for (let left = choose(settings.thinks); left > 0; left -= STEP) {
    await sleep(Math.min(STEP, left))
    look('look', lease)
  }
  record('release', { token: lease.token, at: now() })
  const ok = await lease.release()
  record('released', { token: lease.token, at: now(), ok })
}

/** Campaigns for the leader again and again. A leader ends its term, or hands it over by name. */
async function lead() {
  let asked = now()
  let number
  const campaign = () => {
    number = ++asks
    record('ask', { ask: number, resources: [settings.leader], wait: null, at: asked })
  }
  while (!over) {
    campaign()
    await client.elect(settings.leader, { holder: settings.name }, async (lease) => {
      // After a loss, the campaign began without a call.
      if (number === undefined) campaign()
      const { fences } = lease
      look('granted', lease, { ask: number, resources: Object.keys(fences), fences, shared: [], extended: true, asked })
      try {
        await serve(lease)
      } finally {
        asked = now()
        number = undefined
      }
    })
  }
}

/** One term of a leader. */
async function serve(lease) {
  for (let left = choose(settings.thinks); left > 0; left -= STEP) {
    await sleep(Math.min(STEP, left))
    look('look', lease)
  }
  if (Math.random() < settings.handing) {
    const to = choose(settings.others)
    record('hand', { token: lease.token, at: now(), to })
    let ok = false
    try {
      ok = await lease.handOver(to, { within: settings.ttl })
    } catch (error) {
      if (!(error instanceof QuorumError || error instanceof LeaseLostError)) throw error
    }
    look('handed', lease, { ok })
    if (!lease.valid) return
  }
  record('release', { token: lease.token, at: now() })
  const ok = await lease.release()
  record('released', { token: lease.token, at: now(), ok })
}

/** Records each leader, until the client is closed. */
async function observe() {
  const resource = settings.leader
  try {
    for await (const { holder, fence } of client.watch(resource)) {
      record('observed', { at: now(), process: process.pid, resource, holder, fence })
    }
  } catch (error) {
    if (!(error instanceof ClosedError)) throw error
  }
}

async function loop(turn) {
  while (!over) {
    await turn()
    await sleep(choose(settings.pauses))
  }
}

const observing = observe()
const loops = Array.from({ length: settings.loops }, () => loop(turn))
const permitLoops = Array.from({ length: settings.permit_loops }, () => loop(usePermits))
await Promise.all([lead(), ...loops, ...permitLoops])
register.end()
await client.close()
await observing
record('closed', { at: now() })
