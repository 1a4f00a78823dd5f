// Contenders from npm: `peer.cjs NAME URL...`. ../README.md describes the protocol.
// CommonJS, because only require() finds the packages through NODE_PATH.

const Redis = require('ioredis')
const readline = require('node:readline')

const TTL = 10_000

const [argument, ...urls] = process.argv.slice(2)
const [name, limit] = argument.split(' ')
const clients = urls.map((url) => new Redis(url))

// Each function returns, for a key, a function that runs one cycle. It throws if it gets no lock.
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
    redlock.on('error', () => {}) // errors of single nodes; without a listener they would be thrown
    return (key) => async () => {
      const lock = await redlock.acquire([key], TTL)
      await lock.release()
    }
  },
  // After its name, the limit of the semaphores.
  'redis-semaphore-permits'() {
    const { RedlockSemaphore } = require('redis-semaphore')
    const options = { lockTimeout: TTL, refreshInterval: 0 }
    return (key) => async () => {
      const semaphore = new RedlockSemaphore(clients, key, Number(limit), options)
      await semaphore.acquire()
      await semaphore.release()
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
  // Wait for all loops, also when one fails: interrupting them would leave keys on the nodes.
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
  process.exit() // do not wait for clients that wait for a frozen node
}

main()
