// `Client.from`: nodes from the settings of real clients of ioredis, node-redis and Valkey GLIDE.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { relative } from 'node:path'
import { suite, test } from 'node:test'
import { inspect } from 'node:util'
import { GlideClient, GlideClusterClient } from '@valkey/valkey-glide'
import { Cluster, Redis } from 'ioredis'
import { Client, ConfigError, QuorumError } from 'quorlock'
import { createClient, createClientPool, createCluster, createSentinel } from 'redis'
import { Servers, until } from './servers.js'

/** Each character but the letters has a meaning in URLs. */
const SECRET = 's3cret/@:?#%é'

/** Servers with a user `app`. The default user has a password that no test copies. */
const ONLY_APP = { password: 'that of others', users: { app: `on >${SECRET} ~* &* +@all` } }

const APP = { username: 'app', password: SECRET }

const start = (t, options = {}) => Servers.startWith(t, { start: 1, ...options })

const ioredis = (t, ...args) => {
  const client = new Redis(...args).on('error', () => {})
  t.after(() => client.disconnect())
  return client
}

const nodeRedis = (options) => createClient(options)

/**
 * Locks a resource with the settings of the client, and checks that this client sees the key. Returns the addresses of the
 * nodes.
 */
async function check(existing, options = {}) {
  const client = Client.from(existing, { nodeTimeout: 5_000, ...options })
  const isClosed = existing.isOpen === false
  if (isClosed) await existing.connect()
  try {
    const lease = await client.lock('r')
    assert.equal(await existing.get('r'), lease.token)
    await lease.release()
    const shown = inspect([client, client.stats(), String(await client.doctor())], { depth: null })
    assert(!shown.includes('s3cret'), shown)
    return client.nodes
  } finally {
    await client.close()
    if (isClosed) existing.destroy()
  }
}

/** Returns the message of the ConfigError for this client, in second place. */
function refusal(client, options) {
  let message
  assert.throws(
    () => Client.from([new Redis({ lazyConnect: true, host: 'first' }), client], options),
    (error) => {
      message = error.message
      return error instanceof ConfigError && !inspect(error).includes('s3cret')
    },
  )
  return message
}

const pem = (file) => readFileSync(file, 'utf8')

test('host, port and database are copied', async (t) => {
  const servers = await start(t)
  const [{ port, url }] = servers.all
  const expected = [`${url}/3`]
  assert.deepEqual(await check(ioredis(t, port, '127.0.0.1', { db: 3 })), expected)
  assert.deepEqual(await check(ioredis(t, `${url}/3`)), expected)
  assert.deepEqual(await check(nodeRedis({ socket: { host: '127.0.0.1', port }, database: 3 })), expected)
  assert.deepEqual(await check(nodeRedis({ url: `${url}/3` })), expected)
  assert.deepEqual(await check(ioredis(t, port)), [`redis://localhost:${port}`])
  assert.deepEqual(await check(nodeRedis({ socket: { port } })), [`redis://localhost:${port}`])
})

test('addresses of IPv6 are copied', () => {
  const zoned = new Redis({ host: 'fe80::1%eth0', port: 7, lazyConnect: true })
  assert.deepEqual(Client.from(zoned).nodes, ['redis://[fe80::1%eth0]:7'])
  assert.deepEqual(Client.from(createClient({ url: 'redis://[::1]:7' })).nodes, ['redis://[::1]:7'])
  assert.deepEqual(Client.from(createClient()).nodes, ['redis://localhost:6379'])
})

test('user and password are copied', async (t) => {
  const { all: [{ port }] } = await start(t, ONLY_APP)
  const expected = [`redis://localhost:${port}`]
  assert.deepEqual(await check(ioredis(t, { port, ...APP })), expected)
  assert.deepEqual(await check(nodeRedis({ socket: { port }, ...APP })), expected)
  const url = `redis://app:${encodeURIComponent(SECRET)}@localhost:${port}`
  assert.deepEqual(await check(ioredis(t, url)), expected)
  assert.deepEqual(await check(nodeRedis({ url })), expected)
})

test('the password of the default user is copied', async (t) => {
  const { all: [{ port }] } = await start(t, { password: SECRET })
  assert(await check(ioredis(t, { port, password: SECRET })))
  assert(await check(nodeRedis({ socket: { port }, password: SECRET })))
})

test('Unix sockets are copied', async (t) => {
  const { all: [{ socket }] } = await start(t, { unix_socket: true, ...ONLY_APP })
  assert.deepEqual(await check(ioredis(t, { path: socket, db: 2, ...APP })), [`unix://${socket}/2`])
  assert.deepEqual(await check(nodeRedis({ socket: { path: socket, tls: false }, database: 2, ...APP })), [`unix://${socket}/2`])
  const near = relative(process.cwd(), socket)
  assert.deepEqual(await check(ioredis(t, { path: near, ...APP })), [`unix://${socket}`])
})

suite('TLS', () => {
  test('without a verified certificate is copied', async (t) => {
    const { all: [{ port, ca }] } = await start(t, { tls: 'other-ca', password: SECRET })
    const tls = { rejectUnauthorized: false, ca: pem(ca), servername: 'other.example' }
    const expected = [`rediss://localhost:${port}`]
    assert.deepEqual(await check(ioredis(t, { port, password: SECRET, tls })), expected)
    assert.deepEqual(await check(nodeRedis({ socket: { port, tls: true, ...tls }, password: SECRET })), expected)
  })

  test('is verified, with the authorities of the system', async (t) => {
    const { all: [{ port }] } = await start(t, { tls: 'valid' })
    const clients = [
      new Redis({ port, tls: {}, lazyConnect: true }),
      new Redis(`rediss://localhost:${port}`, { lazyConnect: true }),
      nodeRedis({ url: `rediss://localhost:${port}` }),
      nodeRedis({ socket: { port, tls: true, servername: 'localhost', host: 'localhost' } }),
    ]
    for (const existing of clients) {
      const client = Client.from(existing)
      t.after(() => client.close())
      const error = await client.lock('r', { wait: 0 }).catch((error) => error)
      assert(error instanceof QuorumError, error)
      assert.match(error.nodes[0].detail, /signed by nobody who is trusted/)
    }
  })

  for (const [name, value] of Object.entries({
    ca: SECRET,
    cert: SECRET,
    key: SECRET,
    pfx: SECRET,
    passphrase: SECRET,
    checkServerIdentity: () => undefined,
    servername: 'other.example',
    minVersion: 'TLSv1.3',
    ciphers: 'ECDHE+AESGCM',
    lookup: () => {},
  })) {
    test(`with ${name} is refused`, () => {
      const expected = new RegExp(`^client 2 has (tls|socket)\\.${name}, which cannot be copied: `)
      assert.match(refusal(new Redis({ tls: { [name]: value }, lazyConnect: true })), expected)
      assert.match(refusal(nodeRedis({ socket: { tls: true, [name]: value } })), expected)
      assert.match(refusal(createCluster({ rootNodes: [{}], defaults: { socket: { tls: true, [name]: value } } })), expected)
      assert.match(refusal(new Cluster(['a'], { redisOptions: { tls: { [name]: value } }, lazyConnect: true })), expected)
    })
  }
})

suite('credentials providers', () => {
  test('are asked for each connection', async (t) => {
    const servers = await start(t, ONLY_APP)
    const [{ port }] = servers.all
    let calls = 0
    let open = 0
    const login = () => (calls++, APP)
    const providers = [
      { type: 'async-credentials-provider', credentials: async () => login() },
      {
        type: 'streaming-credentials-provider',
        subscribe: async () => (open++, [login(), { dispose: () => open-- }]),
        onReAuthenticationError() {},
      },
    ]
    for (const credentialsProvider of providers) {
      calls = 0
      const client = Client.from(createClient({ socket: { port }, credentialsProvider }), { nodeTimeout: 5_000 })
      t.after(() => client.close())
      assert.equal(calls, 0)
      await (await client.lock('r')).release()
      const before = calls
      assert(before > 0)
      await servers.ask({ restart: 0 })
      await (await client.lock('r', { wait: null })).release()
      await until(() => calls > before)
      assert.equal(open, 0)
    }
  })

  test('of an unknown type are refused', () => {
    const credentialsProvider = { type: 'other', secret: SECRET }
    assert.match(refusal(createClient({ credentialsProvider })), /credentialsProvider of an unknown type/)
  })

  test('of one node leave the logins of other nodes as they are', async (t) => {
    const [first, second, third] = [await start(t, ONLY_APP), await start(t, { password: SECRET }), await start(t)]
    const credentialsProvider = { type: 'async-credentials-provider', credentials: async () => APP }
    const client = Client.from([
      createClient({ socket: { port: first.all[0].port }, credentialsProvider }),
      ioredis(t, { port: second.all[0].port, password: SECRET }),
      ioredis(t, { port: third.all[0].port }),
    ], { nodeTimeout: 5_000 })
    t.after(() => client.close())
    const { nodes } = await client.doctor()
    assert.deepEqual(nodes.map(({ reachable }) => reachable), [true, true, true])
  })

  test('are replaced by the option credentials', async (t) => {
    const { all: [{ port }] } = await start(t, ONLY_APP)
    for (const existing of [ioredis(t, { port, lazyConnect: true, password: 'wrong' }), createClient({ socket: { port }, password: 'wrong' })]) {
      const client = Client.from(existing, { credentials: () => APP, nodeTimeout: 5_000 })
      t.after(() => client.close())
      await (await client.lock('r')).release()
    }
  })
})

test('three clients are three nodes', async (t) => {
  const servers = await Servers.start(t, 3)
  const clients = servers.urls.map((url) => ioredis(t, url))
  const client = Client.from(clients, { keyPrefix: 'app:', ttl: 5_000 })
  t.after(() => client.close())
  assert.deepEqual(client.nodes, servers.urls)
  await servers.ask({ kill: 0 })
  const lease = await client.lock('r')
  assert.equal(await clients[1].get('app:r'), lease.token)
  assert.equal(lease.ttl, 5_000)
  await lease.release()
})

test('nothing connects', async (t) => {
  const servers = await start(t)
  const [{ port }] = servers.all
  const connections = async () => Number(/total_connections_received:(\d+)/.exec(await servers.command(0, 'INFO', 'stats'))[1])
  const before = await connections()
  Client.from(new Redis({ port, lazyConnect: true }))
  Client.from(createClient({ socket: { port } }))
  Client.from(new Cluster([{ port, host: '127.0.0.1' }], { lazyConnect: true }))
  assert.equal(await connections(), before + 1)
})

test('a subclass makes an object of its own', () => {
  class Locks extends Client {}
  assert(Locks.from(createClient()) instanceof Locks)
})

suite('a keyPrefix', () => {
  const clients = () => [
    new Redis({ keyPrefix: 'app:', lazyConnect: true }),
    createClient({ keyPrefix: 'app:' }),
    createClient({ keyPrefix: Buffer.from('app:') }),
    createCluster({ rootNodes: [{}], keyPrefix: 'app:' }),
    new Cluster(['a'], { keyPrefix: 'app:', lazyConnect: true }),
    new Cluster(['a'], { redisOptions: { keyPrefix: 'app:' }, lazyConnect: true }),
  ]

  test('is refused, unless the option says what to do', () => {
    for (const client of clients()) {
      assert.match(refusal(client), /^client 2 has the keyPrefix "app:", which cannot be copied: pass the same keyPrefix/)
      for (const keyPrefix of ['app:', '']) assert(Client.from(client, { keyPrefix }))
    }
  })

  test('is that of the keys', async (t) => {
    const { all: [{ port }] } = await start(t)
    assert(await check(ioredis(t, { port, keyPrefix: 'app:' }), { keyPrefix: 'app:' }))
  })
})

suite('sentinels', () => {
  test('of ioredis are copied', async (t) => {
    const servers = await Servers.startWith(t, { start_sentinel: true, password: SECRET, sentinel_password: 's3cret of sentinels' })
    const { seeds } = servers.all[0]
    const sentinels = seeds.split(',').map((seed) => ({ host: seed.split(':')[0], port: Number(seed.split(':')[1]) }))
    const settings = { sentinels, name: 'orders', password: SECRET, sentinelPassword: 's3cret of sentinels' }
    assert.deepEqual(await check(ioredis(t, settings)), [`redis-sentinel://${seeds}/orders`])
    assert.deepEqual(await check(ioredis(t, { ...settings, db: 5 })), [`redis-sentinel://${seeds}/orders/5`])
  })

  test('with TLS are copied', async (t) => {
    const servers = await Servers.startWith(t, { start_sentinel: true, tls: true })
    const { seeds } = servers.all[0]
    const sentinels = seeds.split(',').map((seed) => ({ host: seed.split(':')[0], port: Number(seed.split(':')[1]) }))
    const tls = { rejectUnauthorized: false }
    const settings = { sentinels, name: 'orders', tls, sentinelTLS: tls, enableTLSForSentinelMode: true }
    assert.deepEqual(await check(ioredis(t, settings)), [`rediss-sentinel://${seeds}/orders`])
  })

  for (const [what, settings, expected] of [
    ['a replica', { role: 'slave' }, /the role slave/],
    ['other addresses', { natMap: {} }, /the option natMap/],
    ['TLS for the master only', { tls: {}, enableTLSForSentinelMode: true }, /different settings for TLS/],
    ['TLS for the sentinels only', { tls: {}, sentinelTLS: {} }, /different settings for TLS/],
    ['certificates in memory', { sentinelTLS: { ca: SECRET } }, /tls\.ca, which cannot be copied/],
  ]) {
    test(`with ${what} are refused`, () => {
      const client = new Redis({ sentinels: [{ host: 'a' }], name: 'orders', lazyConnect: true, ...settings })
      assert.match(refusal(client), expected)
    })
  }

  test('of node-redis are refused', () => {
    const sentinel = createSentinel({ name: 'orders', sentinelRootNodes: [{ host: 'a', port: 26379 }], nodeClientOptions: APP })
    assert.match(refusal(sentinel), /whose settings are private; pass node URLs to `new Client`, such as redis-sentinel:/)
  })
})

suite('clusters', () => {
  test('are copied', async (t) => {
    const servers = await Servers.startWith(t, { start_cluster: true, password: SECRET })
    const [first, second] = servers.all.map(({ port }) => ({ host: '127.0.0.1', port }))
    const expected = [`redis-cluster://127.0.0.1:${first.port},127.0.0.1:${second.port}`]
    const inUrl = `redis://:${encodeURIComponent(SECRET)}@127.0.0.1:`
    const ofIoredis = [
      [[first, second], { redisOptions: { password: SECRET } }],
      [[{ ...first, password: SECRET }, { ...second, password: SECRET }], { redisOptions: { password: SECRET } }],
      [[inUrl + first.port, inUrl + second.port], { redisOptions: { password: SECRET } }],
      [[first.port, String(second.port)], { redisOptions: { password: SECRET } }],
    ]
    for (const settings of ofIoredis) {
      const cluster = new Cluster(...settings)
      t.after(() => cluster.disconnect())
      assert.deepEqual(await check(cluster), expected)
    }
    const root = ({ port }) => `redis://127.0.0.1:${port}`
    const credentialsProvider = { type: 'async-credentials-provider', credentials: async () => ({ password: SECRET }) }
    for (const settings of [
      { rootNodes: [first, second].map((socket) => ({ socket })), defaults: { password: SECRET } },
      { rootNodes: [{ url: root(first) }, { url: root(second) }], defaults: { password: SECRET } },
      { rootNodes: [{ url: root(first) }, { socket: second }], defaults: { credentialsProvider } },
    ]) {
      assert.deepEqual(await check(createCluster(settings)), expected)
    }
  })

  test('with TLS are copied', async (t) => {
    const servers = await Servers.startWith(t, { start_cluster: true, tls: true })
    const [{ port }] = servers.all
    const tls = { rejectUnauthorized: false }
    const cluster = new Cluster([{ host: '127.0.0.1', port }], { redisOptions: { tls }, dnsLookup: (address, done) => done(null, address) })
    t.after(() => cluster.disconnect())
    assert.deepEqual(await check(cluster), [`rediss-cluster://127.0.0.1:${port}`])
    const other = createCluster({ rootNodes: [{ url: `rediss://127.0.0.1:${port}` }], defaults: { socket: { tls: true, ...tls } } })
    assert.deepEqual(await check(other), [`rediss-cluster://127.0.0.1:${port}`])
  })

  for (const [what, client, expected] of [
    ['other addresses', () => new Cluster(['a'], { natMap: {}, lazyConnect: true }), /the option natMap/],
    ['SRV records', () => new Cluster(['a'], { useSRVRecords: true, lazyConnect: true }), /the option useSRVRecords/],
    ['two logins', () => new Cluster(['a', { host: 'b', password: SECRET }], { lazyConnect: true }), /a different login for each server/],
    ['TLS for one server', () => new Cluster(['a', { host: 'b', tls: {} }], { lazyConnect: true }), /different settings for TLS/],
    ['mapped addresses', () => createCluster({ rootNodes: [{}], nodeAddressMap: {} }), /the option nodeAddressMap/],
    ['a URL for all', () => createCluster({ rootNodes: [{}], defaults: { url: `redis://:${SECRET}@a` } }), /a url in defaults/],
    ['parameters in a URL', () => new Cluster([`redis://:${SECRET.slice(0, 6)}@a?tls=true`], { lazyConnect: true }), /a URL with parameters/],
    ['an invalid URL', () => new Cluster(['redis://:s3cret@a:99999'], { lazyConnect: true }), /a URL that is not valid/],
    ['an invalid url', () => createCluster({ rootNodes: [{ url: 'redis://:s3cret%@a' }] }), /a URL that is not valid/],
    ['TLS and a url without it', () => createCluster({ rootNodes: [{ url: 'redis://a' }], defaults: { socket: { tls: true } } }), /TLS, but a url without it/],
    ['logins in URLs', () => createCluster({ rootNodes: [{ url: 'redis://:s3cret@a' }, { url: 'redis://b' }] }), /a different login for each server/],
  ]) {
    test(`with ${what} are refused`, () => assert.match(refusal(client()), expected))
  }
})

suite('Valkey GLIDE', () => {
  const address = ({ port }) => ({ host: '127.0.0.1', port })

  test('is copied', async (t) => {
    const { all: [server] } = await start(t, ONLY_APP)
    const client = await GlideClient.createClient({ addresses: [address(server)], credentials: APP, databaseId: 4 })
    t.after(() => client.close())
    assert.deepEqual(await check(client), [`redis://127.0.0.1:${server.port}/4`])
  })

  test('is copied with TLS', async (t) => {
    const { all: [server] } = await start(t, { tls: 'other-ca' })
    const advancedConfiguration = { tlsAdvancedConfiguration: { insecure: true } }
    const client = await GlideClient.createClient({ addresses: [address(server)], useTLS: true, advancedConfiguration })
    t.after(() => client.close())
    assert.deepEqual(await check(client), [`rediss://127.0.0.1:${server.port}`])
  })

  test('is copied for a cluster', async (t) => {
    const servers = await Servers.startWith(t, { start_cluster: true, password: SECRET })
    const addresses = servers.all.slice(0, 2).map(address)
    const client = await GlideClusterClient.createClient({ addresses, credentials: { password: SECRET } })
    t.after(() => client.close())
    assert.deepEqual(await check(client), [`redis-cluster://${addresses.map(({ host, port }) => `${host}:${port}`).join()}`])
  })

  test('is refused with certificates in memory, tokens, or several servers', async (t) => {
    const { all: [server] } = await start(t, { tls: 'valid' })
    const settings = { addresses: [address(server)], useTLS: true }
    const given = { rootCertificates: pem(server.ca) }
    const client = await GlideClient.createClient({ ...settings, advancedConfiguration: { tlsAdvancedConfiguration: given } })
    t.after(() => client.close())
    assert.match(refusal(client), /rootCertificates, which cannot be copied: quorlock reads certificates/)

    // A token needs an account of a cloud, and several servers need replicas: the settings of a real client are changed.
    const changed = (config) => Object.assign(Object.create(client), { config })
    assert.match(refusal(changed({ ...settings, credentials: { username: 'a', iamConfig: {} } })), /iamConfig, which cannot be copied/)
    assert.match(refusal(changed({ addresses: [address(server), address(server)] })), /the addresses of several servers/)
    assert.match(refusal(changed(undefined)), /settings that this version of GLIDE does not show/)
  })
})

suite('anything else is refused', () => {
  for (const [what, given, expected] of [
    ['a URL in a string', `redis://:${SECRET}@a`, /not a string; pass node URLs to `new Client`/],
    ['a URL', new URL('redis://:s3cret@a'), /not URL; pass node URLs to `new Client`/],
    ['nothing', undefined, /not undefined; for a client of another package/],
    ['null', null, /not null; for a client of another package/],
    ['an object', { host: 'a' }, /not Object; for a client of another package/],
    ['a client of quorlock', new Client(['memory://a']), /not Client; for a client of another package/],
    ['a pool', createClientPool(), /whose settings are private; pass node URLs/],
    ['a connector of the program', new Redis({ Connector: class { disconnect() {} }, lazyConnect: true }), /the option Connector/],
    ['a host with a scheme', new Redis({ host: 'redis://a', lazyConnect: true }), /a host with characters that no host name has/],
    ['an abstract socket', new Redis({ path: '\0a', lazyConnect: true }), /an abstract socket/],
    ['a password that is not Unicode', new Redis({ password: 's3cret\ud800', lazyConnect: true }), /a password that is not Unicode text/],
    ['a local address', createClient({ socket: { localAddress: '10.0.0.9' } }), /socket\.localAddress, which cannot be copied/],
  ]) {
    test(what, () => assert.match(refusal(given), expected))
  }

  test('no client', () => assert.throws(() => Client.from([]), /none are given/))

  test('an invalid option, or two clients of one server', () => {
    const clients = [createClient(), new Redis({ lazyConnect: true })]
    assert.throws(() => Client.from(clients), /same server/)
    assert.throws(() => Client.from(clients[0], { ttl: -1 }), (error) => error instanceof ConfigError && /ttl/.test(error.message))
    assert.throws(() => Client.from(...clients), /options must be a plain object/)
  })
})
