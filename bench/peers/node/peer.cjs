// The peers from npm: `peer.cjs NAME URL...`, a contender as ../README.md tells.
// The packages are found by NODE_PATH, which only require() looks at.

const Redis = require('ioredis')
const readline = require('node:readline')

const TTL = 10_000

const [name, ...urls] = process.argv.slice(2)
const clients = urls.map((url) => new Redis(url))

// Each makes of a key what runs a cycle on it. All of them throw if they did not get the lock.
const libraries = {
  'redlock-4'() {
    const redlock = new (require('redlock'))(clients)
    return (key) => async () => {
      const lock = await redlock.lock(key, TTL)
      await lock.unlock()
    }
  },
  'redlock-5'() {
    const redlock = new (require('redlock5').default)(clients)
    redlock.on('error', () => {}) // of single nodes; without a listener it would throw
    return (key) => async () => {
      const lock = await redlock.acquire([key], TTL)
      await lock.release()
    }
  },
  'redis-semaphore'() {
    const { RedlockMutex } = require('redis-semaphore')
    const options = { lockTimeout: TTL, refreshInterval: 0 }
    return (key) => async () => {
      const mutex = new RedlockMutex(clients, key, options)
      await mutex.acquire()
      await mutex.release()
    }
  },
}

async function loop(cycle, count) {
  const micros = []
  for (let number = 0; number < count; number++) {
    const start = performance.now()
    await cycle()
    micros.push((performance.now() - start) * 1e3)
  }
  return micros
}

async function answer({ cycles: count, concurrency }) {
  const cycles = Array.from({ length: concurrency }, (_, number) => lock(`${name}-${number}`))
  const before = process.cpuUsage()
  const began = performance.now()
  // All are waited for, also when one fails: what is not cut short leaves no keys behind.
  const loops = await Promise.allSettled(cycles.map((cycle) => loop(cycle, count)))
  const seconds = (performance.now() - began) / 1e3
  const { user, system } = process.cpuUsage(before)
  const failed = loops.find(({ status }) => status === 'rejected')
  if (failed) return { error: String(failed.reason) }
  return { micros: loops.flatMap(({ value }) => value), seconds, cpu: (user + system) / 1e6 }
}

const lock = libraries[name]()

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await answer(JSON.parse(line))))
  }
  process.exit() // a client that waits for a frozen node would be waited for
}

main()
