// The libraries from npm, for worker.js. CommonJS, because require() finds them through NODE_PATH.

const Redis = require('ioredis')

function connect(urls) {
  const clients = urls.map((url) => new Redis(url))
  return { clients, close: () => clients.forEach((client) => client.disconnect()) }
}

module.exports = {
  redlock(urls, tuned, ttl) {
    const { clients, close } = connect(urls)
    const options = tuned ? { retryDelay: 5, retryJitter: 5, retryCount: -1 } : {}
    const redlock = new (require('redlock5').default)(clients, options)
    const take = async (resource) => {
      const lock = await redlock.acquire([resource], ttl)
      return () => lock.release()
    }
    return { take, close }
  },

  'redis-semaphore'(urls, tuned, ttl) {
    const { RedlockMutex } = require('redis-semaphore')
    const { clients, close } = connect(urls)
    // By default it gives up after 10 s, but waits must not end here.
    const options = { lockTimeout: ttl, acquireTimeout: 600_000 }
    if (tuned) options.retryInterval = 5
    const take = async (resource) => {
      const mutex = new RedlockMutex(clients, resource, options)
      await mutex.acquire()
      return () => mutex.release()
    }
    return { take, close }
  },
}
