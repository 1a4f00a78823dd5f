// Runs another lock library from npm: `peer.cjs NAME URL...`. ../peers.py describes the commands.
// This is a CommonJS module, because only require() finds the packages through NODE_PATH.

const Redis = require('ioredis')
const readline = require('node:readline')

const [name, ...urls] = process.argv.slice(2)
const clients = urls.map((url) => new Redis(url))

const once = { retryCount: 0 }

// Each entry returns a function that tries once to acquire a resource. The function resolves with
// the held lock, or with nothing if the lock was refused. `extend` resolves with false if the lock
// was lost.
const lockers = {
  'redlock-4': () => {
    const redlock = new (require('redlock'))(clients, once)
    return async (resource, ttl) => {
      const lock = await redlock.lock(resource, ttl).catch(refusal('LockError'))
      return lock && {
        extend: (ttl) => succeeds(lock.extend(ttl), 'LockError'),
        release: () => succeeds(lock.unlock(), 'LockError'),
      }
    }
  },
  'redlock-5': () => {
    const redlock = new (require('redlock5').default)(clients, once)
    return async (resource, ttl) => {
      let lock = await redlock.acquire([resource], ttl).catch(refusal('ExecutionError'))
      return lock && {
        extend: (ttl) => succeeds(lock.extend(ttl).then((next) => (lock = next)), 'ExecutionError'),
        release: () => succeeds(lock.release(), 'ExecutionError'),
      }
    }
  },
  'redlock-universal': () => {
    const { createRedlock, IoredisAdapter } = require('redlock-universal')
    const adapters = clients.map((client) => new IoredisAdapter(client))
    return async (key, ttl) => {
      const redlock = createRedlock({ adapters, key, ttl, retryAttempts: 0 })
      const handle = await redlock.acquire().catch(refusal('LockAcquisitionError'))
      return handle && {
        extend: (ttl) => redlock.extend(handle, ttl),
        release: () => redlock.release(handle),
      }
    }
  },
  'redis-semaphore': () => {
    const { RedlockMutex } = require('redis-semaphore')
    return async (resource, ttl) => {
      const options = { acquireAttemptsLimit: 1, refreshInterval: 0, retryInterval: 1 }
      const mutex = new RedlockMutex(clients, resource, { ...options, lockTimeout: ttl })
      const { identifier } = mutex
      // A new mutex with the identifier of the held mutex extends its lock.
      const extending = { ...options, identifier, acquiredExternally: true }
      return (
        (await mutex.tryAcquire()) && {
          extend: (ttl) =>
            new RedlockMutex(clients, resource, { ...extending, lockTimeout: ttl }).tryAcquire(),
          release: () => mutex.release(),
        }
      )
    }
  },
}

// Returns a handler that ignores the error of a lock that is refused or lost, and rethrows others.
function refusal(expected) {
  return (error) => {
    if (error.name !== expected) throw error
  }
}

async function succeeds(promise, expected) {
  try {
    await promise
    return true
  } catch (error) {
    refusal(expected)(error)
    return false
  }
}

const held = {}

async function answer({ acquire, ttl, extend, release }) {
  if (release !== undefined) {
    await held[release].release()
    return {}
  }
  if (extend !== undefined) return { held: await held[extend].extend(ttl) }
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
