// The peers from npm: `peer.cjs NAME URL...`. The commands are described in ../peers.py.
// The packages are found by NODE_PATH, which only require() looks at.

const Redis = require('ioredis')
const readline = require('node:readline')

const [name, ...urls] = process.argv.slice(2)
const clients = urls.map((url) => new Redis(url))

const once = { retryCount: 0 }

// Each tries once to take a resource, and returns what releases it, or nothing.
const lockers = {
  'redlock-4': () => {
    const redlock = new (require('redlock'))(clients, once)
    return async (resource, ttl) => {
      const lock = await redlock.lock(resource, ttl).catch(refusal('LockError'))
      return lock && (() => lock.unlock().catch(refusal('LockError')))
    }
  },
  'redlock-5': () => {
    const redlock = new (require('redlock5').default)(clients, once)
    return async (resource, ttl) => {
      const lock = await redlock.acquire([resource], ttl).catch(refusal('ExecutionError'))
      return lock && (() => lock.release().catch(refusal('ExecutionError')))
    }
  },
  'redis-semaphore': () => {
    const { RedlockMutex } = require('redis-semaphore')
    return async (resource, ttl) => {
      const options = { lockTimeout: ttl, acquireAttemptsLimit: 1, refreshInterval: 0 }
      const mutex = new RedlockMutex(clients, resource, { ...options, retryInterval: 1 })
      return (await mutex.tryAcquire()) && (() => mutex.release())
    }
  },
}

// What a library throws when it does not get, or no longer has, the lock.
function refusal(expected) {
  return (error) => {
    if (error.name !== expected) throw error
  }
}

const held = {}

async function answer({ acquire, ttl, release }) {
  if (release !== undefined) {
    await held[release]()
    return {}
  }
  const lock = await take(acquire, ttl)
  if (lock) held[acquire] = lock
  return { held: Boolean(lock) }
}

const take = lockers[name]()

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await answer(JSON.parse(line))))
  }
  clients.forEach((client) => client.disconnect())
}

main()
