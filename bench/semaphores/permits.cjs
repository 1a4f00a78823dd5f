// Holders of one semaphore that come and go: `permits.cjs LIBRARY LIMIT URL...`. bench/README.md describes the protocol.
// CommonJS, because only require() finds redis-semaphore, through NODE_PATH.

const { createInterface } = require('node:readline')
const { setTimeout: sleep } = require('node:timers/promises')

const RESOURCE = 'held by many'
const WAIT = 10_000

const [library, limit, ...urls] = process.argv.slice(2)

/** Returns nanoseconds of the clock that all processes share. */
const now = () => Number(process.hrtime.bigint())

// Each function connects, and returns a function that makes the acquire of one task. An acquire returns a function
// that releases the permit, or null if there was none within WAIT.
const libraries = {
  quorlock() {
    const { Client, LockTimeoutError } = require('quorlock')
    const client = new Client(urls)
    const semaphore = client.semaphore(RESOURCE, { limit: Number(limit), wait: WAIT })
    return () => async () => {
      const lease = await semaphore.acquire().catch((error) => {
        if (error instanceof LockTimeoutError) return null
        throw error
      })
      if (!lease) return null
      return async () => {
        if (!(await lease.release())) throw new Error('not released')
      }
    }
  },

  // With its defaults, it gives up after 10 s, too.
  'redis-semaphore'() {
    const Redis = require('ioredis')
    const { RedlockSemaphore } = require('redis-semaphore')
    const clients = urls.map((url) => new Redis(url))
    return () => {
      const semaphore = new RedlockSemaphore(clients, RESOURCE, Number(limit))
      return async () => ((await semaphore.tryAcquire()) ? () => semaphore.release() : null)
    }
  },
}

async function loop(acquire, { hold, spread }, end) {
  const turns = []
  await sleep(hold * Math.random() * 1e3) // the tasks do not all begin at once
  while (performance.now() < end) {
    const began = now()
    const release = await acquire()
    if (!release) {
      turns.push([began, null, null, null])
      continue
    }
    const granted = now()
    await sleep((hold + spread * (2 * Math.random() - 1)) * 1e3)
    const ended = now()
    await release()
    turns.push([began, granted, ended, now()])
  }
  return turns
}

async function main() {
  const open = libraries[library]()
  for await (const line of createInterface({ input: process.stdin })) {
    const request = JSON.parse(line)
    const end = performance.now() + request.seconds * 1e3
    const tasks = Array.from({ length: request.tasks }, () => loop(open(), request, end))
    console.log(JSON.stringify({ turns: (await Promise.all(tasks)).flat() }))
  }
  process.exit()
}

main()
