// A service in Node.js before its migration: `before.cjs SETTINGS`. See ../test_roll_over.py.

const Redis = require('ioredis')
const { settings, takeTurns } = require('./turns.cjs')

const nodes = settings.urls.map((url) => new Redis(url))
const manyRetries = { retryCount: 1_000, retryDelay: 5, retryJitter: 4 }

const libraries = {
  'redlock-4': () => {
    const redlock = new (require('redlock'))(nodes, manyRetries)
    return async (turn) => {
      const lock = await redlock.lock('orders', settings.ttl)
      await turn(null)
      await lock.unlock()
    }
  },
  'redlock-5': () => {
    // The keys of a failed attempt block all retries of the same `acquire`, so let it give up soon.
    const fewRetries = { ...manyRetries, retryCount: 3 }
    const redlock = new (require('redlock5').default)(nodes, fewRetries)
    return async (turn) => {
      const lock = await redlock.acquire(['orders'], settings.ttl).catch(() => null)
      if (!lock) return
      await turn(null)
      await lock.release()
    }
  },
  'redlock-universal': () => {
    const { createRedlock, IoredisAdapter } = require('redlock-universal')
    const adapters = nodes.map((node) => new IoredisAdapter(node))
    // All attempts of a worker are equally far apart, so let two of them not meet again and again.
    const settingsOf = () => ({ retryAttempts: 20, retryDelay: 3 + Math.floor(Math.random() * 5) })
    return async (turn) => {
      const options = { adapters, key: 'orders', ttl: settings.ttl, ...settingsOf() }
      const redlock = createRedlock(options)
      const handle = await redlock.acquire().catch(() => null)
      if (!handle) return
      await turn(null)
      await redlock.release(handle)
    }
  },
  'redis-semaphore': () => {
    const { RedlockMutex } = require('redis-semaphore')
    const options = { lockTimeout: settings.ttl, acquireTimeout: 60_000 }
    return async (turn) => {
      const mutex = new RedlockMutex(nodes, 'orders', options)
      await mutex.acquire()
      await turn(null)
      await mutex.release()
    }
  },
}

takeTurns(libraries[settings.library]()).then(() => nodes.forEach((node) => node.disconnect()))
