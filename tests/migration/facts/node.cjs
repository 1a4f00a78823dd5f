// Checks statements in docs/migration/ about the Node.js libraries.
// Usage: `node.cjs FACT DEAD_URL URL...`.

const assert = require('node:assert/strict')
const { setTimeout: sleep } = require('node:timers/promises')
const Redis = require('ioredis')
const Redlock4 = require('redlock')
const { default: Redlock5, ExecutionError } = require('redlock5')
const { Mutex, RedlockMutex } = require('redis-semaphore')
const { createRedlock, IoredisAdapter, LockManager } = require('redlock-universal')

const [fact, dead, ...urls] = process.argv.slice(2)
const DAY = 86_400_000

const connect = (url) => new Redis(url)
const lose = (nodes, key) => Promise.all(nodes.map((node) => node.del(key)))
const occupy = (nodes, key) => Promise.all(nodes.map((node) => node.set(key, 'somebody')))

// Returns a lock of redlock-universal that tries once.
function universal(nodes, options = {}, adapterOptions = {}) {
  const adapters = nodes.map((node) => new IoredisAdapter(node, adapterOptions))
  return createRedlock({ adapters, key: 'r', ttl: 60_000, retryAttempts: 0, ...options })
}

// Runs `work` while the second node delays writes for 300 ms.
async function withSlowNode(work) {
  const other = connect(urls[1])
  await other.client('PAUSE', 60_000, 'WRITE')
  const worked = work()
  await sleep(300)
  await other.client('UNPAUSE')
  await worked
}

const facts = {
  async redlock_4_ignores_a_retry_count_of_zero_for_one_lock(nodes) {
    await occupy(nodes, 'r')
    const redlock = new Redlock4(nodes, { retryCount: 2, retryDelay: 1, retryJitter: 0 })
    await assert.rejects(redlock.lockWithOptions('r', DAY, { retryCount: 0 }), { attempts: 3 })
  },

  async redlock_4_rejects_the_release_of_a_lost_lock(nodes) {
    const lock = await new Redlock4(nodes).lock('r', DAY)
    await lose(nodes, 'r')
    await assert.rejects(lock.unlock(), { name: 'LockError' })
  },

  async redlock_4_extends_in_place(nodes) {
    const lock = await new Redlock4(nodes).lock('r', 60_000)
    assert.equal(await lock.extend(DAY), lock)
    assert.ok((await nodes[0].pttl('r')) > 60_000)
  },

  async redlock_5_extends_into_another_lock(nodes) {
    const lock = await new Redlock5(nodes).acquire(['r'], 60_000)
    const next = await lock.extend(DAY)
    assert.notEqual(next, lock)
    await assert.rejects(lock.extend(DAY), ExecutionError)
  },

  async redlock_5_replaces_the_result_of_using_if_the_lock_was_lost(nodes) {
    const redlock = new Redlock5(nodes, { retryCount: 0 })
    const using = redlock.using(['r'], DAY, async () => {
      await lose(nodes, 'r')
      return 'the result of the work'
    })
    await assert.rejects(using, ExecutionError)
  },

  async redlock_5_retries_the_release_of_a_lost_lock(nodes) {
    const redlock = new Redlock5(nodes, { retryCount: 3, retryDelay: 1, retryJitter: 0 })
    const lock = await redlock.acquire(['r'], DAY)
    await lose(nodes, 'r')
    const error = await lock.release().catch((error) => error)
    assert.equal(error.attempts.length, 4)
  },

  async redlock_5_never_ends_with_an_even_split(nodes) {
    const two = nodes.slice(0, 2)
    await occupy(two.slice(0, 1), 'r')
    const redlock = new Redlock5(two, { retryCount: 0 })
    const ended = redlock.acquire(['r'], DAY).then(() => 'won', () => 'lost')
    // The first node refuses at once. When the second has the key, the votes are split evenly.
    while (!(await two[1].exists('r'))) await sleep(1)
    assert.equal(await Promise.race([ended, sleep(300, 'neither')]), 'neither')
  },

  async redlock_5_is_refused_by_its_own_key_when_it_retries(nodes) {
    await occupy(nodes.slice(0, 2), 'r')
    const redlock = new Redlock5(nodes, { retryCount: 1, retryDelay: 300, retryJitter: 0 })
    const rejected = assert.rejects(redlock.acquire(['r'], DAY), ExecutionError)
    while (!(await nodes[2].exists('r'))) await sleep(1)
    // Free the first node. It and the third, which has the key of the first attempt, could now be a
    // majority for the second attempt. But the third node refuses, because the key exists.
    await lose(nodes.slice(0, 1), 'r')
    await rejected
  },

  async redlock_5_resolves_with_a_lock_that_has_ended(nodes) {
    await withSlowNode(async () => {
      const lock = await new Redlock5(nodes.slice(0, 2)).acquire(['r'], 50)
      assert.ok(lock.expiration < Date.now())
      assert.equal(await nodes[0].exists('r'), 0)
    })
  },

  async redlock_5_gives_one_error_for_held_and_for_down(nodes) {
    await occupy(nodes, 'r')
    const redlock = new Redlock5(nodes, { retryCount: 0 })
    await assert.rejects(redlock.acquire(['r'], DAY), ExecutionError)
    const options = { maxRetriesPerRequest: 0, retryStrategy: () => null }
    const down = [dead, dead, dead].map((url) => new Redis(url, options).on('error', () => {}))
    const other = new Redlock5(down, { retryCount: 0 })
    await assert.rejects(other.acquire(['r'], DAY), ExecutionError)
  },

  async redlock_5_does_not_abort_at_the_expiry_while_an_extension_hangs(nodes) {
    const redlock = new Redlock5(nodes, { retryCount: 0, automaticExtensionThreshold: 400 })
    const others = urls.map(connect)
    const using = redlock.using(['r'], 500, async (signal) => {
      // Delays writes, as a hanging node does.
      await Promise.all(others.map((node) => node.client('PAUSE', 60_000, 'WRITE')))
      await sleep(1_000)
      const aborted = signal.aborted
      await Promise.all(others.map((node) => node.client('UNPAUSE')))
      assert.equal(aborted, false, 'aborted within 0.5 s of the expiry')
    })
    await assert.rejects(using, ExecutionError)
  },

  async redlock_locks_several_resources_under_one_token(nodes) {
    for (const lock of [
      await new Redlock4(nodes).lock(['a', 'b'], DAY),
      await new Redlock5(nodes).acquire(['c', 'd'], DAY),
    ]) {
      const keys = lock.resource ?? lock.resources
      assert.deepEqual(await nodes[0].mget(keys), [lock.value, lock.value])
    }
  },

  async the_key_prefix_of_ioredis_is_a_part_of_the_key(nodes) {
    const prefixed = urls.map((url) => new Redis(url, { keyPrefix: 'app:' }))
    await new Redlock4(prefixed).lock('four', DAY)
    await new Redlock5(prefixed).acquire(['five'], DAY)
    await new RedlockMutex(prefixed, 'six', { refreshInterval: 0 }).acquire()
    await universal(prefixed, { key: 'seven' }).acquire()
    await prefixed[0].ping() // answered after all earlier requests on this connection
    const keys = ['app:four', 'app:five', 'app:mutex:six', 'app:seven']
    assert.equal(await nodes[0].exists(...keys), keys.length)
  },

  async redlock_universal_waits_for_the_slowest_node(nodes) {
    const other = connect(urls[2])
    await other.client('PAUSE', 60_000, 'WRITE')
    const started = performance.now()
    const lock = universal(nodes, {}, { timeout: 300 })
    const handle = await lock.acquire()
    assert.ok(performance.now() - started > 290)
    assert.deepEqual(handle.metadata.nodes, ['node-0', 'node-1'])
    await other.client('UNPAUSE')
  },

  async redlock_universal_leaves_the_key_of_a_node_that_answers_late(nodes) {
    await occupy(nodes.slice(0, 2), 'r')
    const other = connect(urls[2])
    await other.client('PAUSE', 60_000, 'WRITE')
    const lock = universal(nodes, {}, { timeout: 100 })
    await assert.rejects(lock.acquire(), { name: 'LockAcquisitionError' })
    await other.client('UNPAUSE')
    await nodes[2].ping() // answered after the request to lock, on this connection
    assert.equal(await other.exists('r'), 1)
  },

  async redlock_universal_gives_one_error_for_held_and_for_down(nodes) {
    await occupy(nodes, 'r')
    await assert.rejects(universal(nodes).acquire(), { code: 'LOCK_ACQUISITION_FAILED' })
    const options = { maxRetriesPerRequest: 0, retryStrategy: () => null }
    const down = [dead, dead, dead].map((url) => new Redis(url, options).on('error', () => {}))
    await assert.rejects(universal(down).acquire(), { code: 'LOCK_ACQUISITION_FAILED' })
  },

  async redlock_universal_does_not_report_a_loss_at_the_end_of_using(nodes) {
    const result = await universal(nodes).using(async () => {
      await lose(nodes, 'r')
      return 'the result of the work'
    })
    assert.equal(result, 'the result of the work')
  },

  async redlock_universal_does_not_abort_at_the_expiry_while_an_extension_hangs(nodes) {
    const others = urls.map(connect)
    await universal(nodes, { ttl: 1_500 }).using(async (signal) => {
      // Delays writes, as a hanging node does.
      await Promise.all(others.map((node) => node.client('PAUSE', 60_000, 'WRITE')))
      await sleep(2_000)
      const aborted = signal.aborted
      await Promise.all(others.map((node) => node.client('UNPAUSE')))
      assert.equal(aborted, false, 'aborted within 0.5 s of the expiry')
    })
  },

  async redlock_universal_returns_false_if_the_lock_was_lost(nodes) {
    const lock = universal(nodes)
    const handle = await lock.acquire()
    await lose(nodes, 'r')
    assert.equal(await lock.extend(handle, 60_000), false)
    assert.equal(await lock.release(handle), false)
  },

  async redlock_universal_locks_a_batch_on_one_node(nodes) {
    const manager = new LockManager({ nodes: nodes.map((node) => new IoredisAdapter(node)) })
    await manager.acquireBatch(['a', 'b'], { ttl: 60_000 })
    const counts = await Promise.all(nodes.map((node) => node.exists('a', 'b')))
    assert.deepEqual(counts, [2, 0, 0])
  },

  async redis_semaphore_does_not_try_without_time_to_acquire(nodes) {
    const mutex = new Mutex(nodes[0], 'r', { acquireTimeout: 0 })
    assert.equal(await mutex.tryAcquire(), false)
    assert.equal(await nodes[0].exists('mutex:r'), 0)
  },

  async redis_semaphore_resolves_with_a_lock_that_has_ended(nodes) {
    await withSlowNode(async () => {
      const options = { lockTimeout: 50, refreshInterval: 0 }
      const mutex = new RedlockMutex(nodes.slice(0, 2), 'r', options)
      await mutex.acquire()
      assert.equal(mutex.isAcquired, true)
      assert.equal(await nodes[0].exists('mutex:r'), 0)
    })
  },

  async redis_semaphore_throws_a_loss_where_nobody_catches_it(nodes) {
    const uncaught = new Promise((resolve) => process.once('unhandledRejection', resolve))
    const mutex = new RedlockMutex(nodes, 'r', { lockTimeout: DAY, refreshInterval: 10 })
    await mutex.acquire()
    await lose(nodes, 'mutex:r')
    assert.match((await uncaught).message, /Lost redlock-mutex/)
  },

  async redis_semaphore_gives_up_its_own_keys_when_a_refresh_fails(nodes) {
    const lost = new Promise((resolve) => {
      const options = { lockTimeout: DAY, refreshInterval: 10, onLockLost: resolve }
      const mutex = new RedlockMutex(nodes, 'r', options)
      mutex.acquire().then(() => lose(nodes.slice(0, 2), 'mutex:r'))
    })
    await lost
    assert.equal(await nodes[2].exists('mutex:r'), 0)
  },

  async redis_semaphore_does_not_report_the_release_of_a_lost_lock(nodes) {
    const mutex = new RedlockMutex(nodes, 'r', { refreshInterval: 0 })
    await mutex.acquire()
    await lose(nodes, 'mutex:r')
    assert.equal(await mutex.release(), undefined)
  },
}

facts[fact](urls.map(connect)).then(
  () => process.exit(),
  (error) => {
    console.error(error)
    process.exit(1)
  },
)
