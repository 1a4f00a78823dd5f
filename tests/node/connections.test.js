// Runs the lock over every kind of connection, on real servers: see tests/vectors/README.md.

import assert from 'node:assert/strict'
import { after, suite, test } from 'node:test'
import { inspect } from 'node:util'
import { Client, LeaseLostError, LockTimeoutError } from 'quorlock'
import { expectOutcome, load } from './rows.js'
import { Servers, until } from './servers.js'

/** Milliseconds: longer than any test, so a waiter that gets the lock in a test was notified. */
const NEVER = 600_000
const PATIENT = { ttl: NEVER, wait: NEVER, retryDelay: [NEVER, NEVER] }
const TIMEOUT = 60_000

/** Microseconds: fences of two clients may be out of order by this much after all nodes lost their counters. */
const CLOCK_ERROR = 4_000_000

const vectors = load('connections')

/** The servers of the vectors, each started when a case first needs it. */
const started = new Map()
const stops = []

async function setup(name) {
  if (!started.has(name)) {
    const owner = { after: (stop) => stops.push(stop) }
    started.set(name, await Servers.startWith(owner, vectors.servers[name]))
  }
  return started.get(name)
}

/** Returns the placeholders in the URLs of a case: `{sentinel.seeds}` is a field of a server. */
const places = (row) => [...row.nodes.join().matchAll(/{([\w-]+)\.(\w+)}/g)]

/** Starts the servers of a case, and returns its URLs with all placeholders replaced. */
async function nodes(row) {
  const values = new Map()
  for (const [place, name, field] of places(row)) {
    values.set(place, (await setup(name)).all[0][field])
  }
  return row.nodes.map((url) => url.replace(/{.*?}/g, (place) => values.get(place)))
}

/** Returns how many requests of the client were refused because the lock was held. */
function held(client) {
  return client.stats().nodes.reduce((sum, node) => sum + (node.outcomes.held ?? 0), 0)
}

/** Exercises all operations of a lock on these nodes. */
async function exercise(t, urls, row) {
  const [holder, other] = [new Client(urls, PATIENT), new Client(urls, PATIENT)]
  t.after(() => Promise.all([holder.close(), other.close()]))
  const lease = await holder.lock(row.what)
  assert(await other.locked(row.what))
  const refused = await other.lock(row.what, { wait: 0 }).catch((error) => error)
  assert(refused instanceof LockTimeoutError, inspect(refused))
  const shown = inspect([holder, lease, refused, String(await holder.doctor())])
  for (const secret of row.never ?? []) assert(!shown.includes(secret), shown)
  await lease.extend(2 * NEVER)
  assert(lease.remaining > NEVER)

  const tried = held(other)
  const waiting = other.lock(row.what)
  await until(() => held(other) > tried)
  assert(await lease.release())
  const following = await waiting
  assert(following.fence > lease.fence)

  for (const [, name] of places(row)) await started.get(name).ask({ flush: true })
  await assert.rejects(following.extend(), LeaseLostError)
  assert(following.signal.aborted)
  const last = await holder.lock(row.what)
  // The nodes have lost their counters, and each client estimates the time on the nodes by itself.
  // So the fences may be out of order by the error of these estimates.
  assert(last.fence > following.fence - CLOCK_ERROR)
  assert(await last.release())
  assert(!(await other.locked(row.what)))
}

suite('connections', () => {
  after(() => Promise.all(stops.map((stop) => stop())))

  for (const row of vectors.cases) {
    test(row.what, async (t) => {
      let urls
      try {
        urls = await nodes(row)
      } catch (error) {
        if (!error.message.startsWith('Unavailable')) throw error
        return t.skip(error.message)
      }
      if (row.error === undefined) return exercise(t, urls, row)
      // With a silent server, the attempt ends at the default timeout. With any other server, the
      // client learns the reason, so the error must come early even if the timeout is long.
      const options = row.silent ? {} : { connectTimeout: TIMEOUT }
      const began = performance.now()
      await expectOutcome(row, async () => {
        const client = new Client(urls, options)
        t.after(() => client.close())
        await client.lock('r', { wait: 0 })
      })
      assert(performance.now() - began < TIMEOUT / 2, 'the error came too late')
    })
  }
})
