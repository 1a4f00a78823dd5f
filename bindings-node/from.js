// Turns the settings of clients of ioredis, node-redis and Valkey GLIDE into nodes, for `Client.from`. Only reads
// properties of these clients: opens no connection, and imports none of these packages. No error may contain a user or a
// password.

'use strict'

const { isIPv6 } = require('node:net')
const { resolve } = require('node:path')
const { ConfigError } = require('./errors.js')
const { shown } = require('#native')

const URLS = 'pass node URLs to `new Client`'

/** Host names and addresses that a node URL can have. The zone of an IPv6 address is apart. */
const HOST = /^[^\s\p{Cc}/?#@,%[\]\\]+$/u

/**
 * The settings for sockets and TLS that are copied, or that need not be: those that concern timeouts, and the way to one of
 * several addresses. Any other one is refused.
 */
const SOCKET = new Set([
  ...['host', 'port', 'path', 'tls', 'rejectUnauthorized', 'servername', 'minVersion', 'maxVersion'],
  ...['family', 'hints', 'autoSelectFamily', 'autoSelectFamilyAttemptTimeout'],
  ...['connectTimeout', 'socketTimeout', 'timeout', 'reconnectStrategy', 'keepAlive', 'keepAliveInitialDelay', 'noDelay'],
  ...['ALPNProtocols', 'enableTrace', 'highWaterMark', 'session', 'signal'],
])

/** The settings that matter only if the server's certificate is verified. */
const VERIFYING = new Set(['ca', 'crl', 'checkServerIdentity', 'servername'])

/** What to do about settings that a node URL cannot express. */
const IN_MEMORY = `quorlock reads certificates and keys from PEM files; ${URLS}, with cacert, cert and key`
const ADVICE = {
  ca: IN_MEMORY,
  cert: IN_MEMORY,
  key: IN_MEMORY,
  pfx: IN_MEMORY,
  passphrase: 'quorlock reads only keys without a passphrase; decrypt the key',
  checkServerIdentity: 'quorlock verifies that the certificate is valid for the host; use a host that is in it',
  servername: 'quorlock verifies that the certificate is valid for the host; use a host that is in it',
  minVersion: 'quorlock also accepts TLS 1.2; set the version on the server',
}

/** Throws the ConfigError for a setting of a client that cannot be copied. */
function refuse(position, what, advice = `quorlock has no such setting; ${URLS}`) {
  throw new ConfigError(`client ${position} has ${what}, which cannot be copied: ${advice}`)
}

/** Returns a string of the settings, percent-encoded. */
function encoded(position, what, value) {
  const text = typeof value === 'string' ? value : String(value)
  if (!text.isWellFormed()) refuse(position, `${what} that is not Unicode text`, 'correct it')
  return encodeURIComponent(text)
}

/** Returns a host and a port as in a URL. */
function placeOf(position, { host, port }, defaultPort = 6379) {
  const [name, ...zone] = String(host ?? 'localhost').split('%')
  const number = Number(port ?? defaultPort)
  if (!Number.isInteger(number)) refuse(position, 'a port that is no number', 'correct it')
  const isPlain = HOST.test(name) && zone.length <= Number(isIPv6(name)) && /^[\w.~-]*$/.test(zone.join())
  if (!isPlain) refuse(position, 'a host with characters that no host name has', 'correct it')
  const shownZone = zone.length > 0 ? `%25${zone[0]}` : ''
  return name.includes(':') ? `[${name}${shownZone}]:${number}` : `${name}:${number}`
}

/** Returns the URL parameters for TLS. Throws ConfigError for what a URL cannot express. */
function tlsOf(position, settings, within) {
  checkSocket(position, settings, within)
  if (settings.minVersion === 'TLSv1.3') refuse(position, `${within}minVersion`, ADVICE.minVersion)
  return settings.rejectUnauthorized === false ? ['insecure=true'] : []
}

/** Throws ConfigError for a setting of a socket that a URL cannot express. `within` is where it is in the options. */
function checkSocket(position, settings, within) {
  const isInsecure = settings.rejectUnauthorized === false
  for (const [name, value] of Object.entries(settings)) {
    const isOther = name === 'servername' ? value !== settings.host : !SOCKET.has(name)
    if (value === undefined || value === null || !isOther || (isInsecure && VERIFYING.has(name))) continue
    refuse(position, within + name, ADVICE[name])
  }
}

/** Returns the user and the password as { username, password }, or undefined if neither is set. */
function loginOf({ username, password }) {
  return username || password ? { username: username || undefined, password: password || '' } : undefined
}

const isSameLogin = (one, other) => one?.username === other?.username && one?.password === other?.password

/** Returns a URL with the login, and the same URL without it. `ask` returns the login if a provider has it. */
function nodeOf(position, { scheme, rest, parameters = [], login, ask }) {
  const [user, password] = login
    ? [encoded(position, 'a user', login.username ?? ''), encoded(position, 'a password', login.password)]
    : []
  const url = (before, added) => `${scheme}://${before}${rest}${[...parameters, ...added].map((each, index) => (index ? '&' : '?') + each).join('')}`
  const inPath = scheme === 'unix'
  const added = inPath && login ? [...(user ? [`user=${user}`] : []), `pass=${password}`] : []
  return {
    url: url(!inPath && login ? `${user}:${password}@` : '', added),
    bareUrl: url('', []),
    // Without a login, a user without a password is logged in like this, too, as before any login.
    ask: ask ?? (() => login ?? { password: '' }),
    isAsked: ask !== undefined,
  }
}

/** Returns the database as it follows the host in a URL. The core checks the number. */
const databaseOf = (position, database) => (database ? `/${encoded(position, 'a database', database)}` : '')

/** Returns the node of a client for one server. */
function serverOf(position, { socket, within, encrypts, database, ...login }) {
  const inUrl = databaseOf(position, database)
  if (socket.path) {
    if (encrypts) refuse(position, 'TLS on a Unix socket', 'quorlock uses Unix sockets without TLS')
    if (socket.path.startsWith('\0')) refuse(position, 'an abstract socket', 'quorlock connects to sockets with a path')
    const rest = resolve(socket.path).split('/').map((part) => encoded(position, 'a path', part)).join('/')
    return nodeOf(position, { scheme: 'unix', rest, parameters: inUrl ? [`db=${inUrl.slice(1)}`] : [], ...login })
  }
  const parameters = encrypts ? tlsOf(position, socket, within) : []
  if (!encrypts) checkSocket(position, socket, within)
  return nodeOf(position, { scheme: encrypts ? 'rediss' : 'redis', rest: placeOf(position, socket) + inUrl, parameters, ...login })
}

/** Returns the node of a client for a cluster. */
function clusterOf(position, { places, encrypts, parameters, ...login }) {
  return nodeOf(position, { scheme: encrypts ? 'rediss-cluster' : 'redis-cluster', rest: places.join(), parameters, ...login })
}

// ioredis, and iovalkey, which has the same code.

/** Returns the settings for TLS. In a URL, `tls=true` is a string. */
const tlsOfIoredis = (tls) => (tls && typeof tls !== 'object' ? {} : tls)

function ioredis(position, { options }) {
  const { host, port, path, db: database, tls, sentinels, Connector } = options
  if (Connector) refuse(position, 'the option Connector', `quorlock cannot know how it connects; ${URLS}`)
  if (sentinels) return ioredisSentinels(position, options)
  const socket = { ...(path ? { path } : { host, port }), ...tlsOfIoredis(tls) }
  return serverOf(position, { socket, within: 'tls.', encrypts: Boolean(tls), database, login: loginOf(options) })
}

function ioredisSentinels(position, options) {
  const { sentinels, name, role, natMap, db, sentinelTLS, enableTLSForSentinelMode } = options
  if (role === 'slave') refuse(position, 'the role slave', 'locks need the master')
  if (natMap) refuse(position, 'the option natMap', 'quorlock uses the address that the sentinels report')
  // ioredis encrypts connections to the master only with this option.
  const tls = enableTLSForSentinelMode ? tlsOfIoredis(options.tls) : undefined
  const [parameters, ofSentinels] = [tls, tlsOfIoredis(sentinelTLS)].map((each) => each && tlsOf(position, each, 'tls.'))
  if (parameters?.join() !== ofSentinels?.join()) {
    refuse(position, 'different settings for TLS for the sentinels and the master', 'set sentinelTLS, tls and enableTLSForSentinelMode alike')
  }
  const login = loginOf({ username: options.sentinelUsername, password: options.sentinelPassword })
  const forSentinels = login ? [`sentinel_password=${encoded(position, 'a password', login.password)}`] : []
  if (login?.username) forSentinels.unshift(`sentinel_user=${encoded(position, 'a user', login.username)}`)
  const places = sentinels.map((sentinel) => placeOf(position, sentinel, 26379)).join()
  return nodeOf(position, {
    scheme: tls ? 'rediss-sentinel' : 'redis-sentinel',
    rest: `${places}/${encoded(position, 'a service', name)}${databaseOf(position, db)}`,
    parameters: [...(parameters ?? []), ...forSentinels],
    login: loginOf(options),
  })
}

function ioredisCluster(position, { startupNodes, options }) {
  for (const name of ['natMap', 'useSRVRecords']) {
    if (options[name]) refuse(position, `the option ${name}`, 'quorlock uses the addresses that the cluster reports')
  }
  const nodes = startupNodes.map((node) => {
    const own = Object.entries(typeof node === 'object' ? node : addressOf(position, node))
    return { ...options.redisOptions, ...Object.fromEntries(own.filter(([, value]) => value !== undefined)) }
  })
  const encrypted = nodes.map(({ tls }) => tls && tlsOf(position, tlsOfIoredis(tls), 'tls.'))
  return alike(position, nodes.map((node) => placeOf(position, node)), nodes.map(loginOf), encrypted, 'redisOptions')
}

/** Returns the node of a cluster whose servers must have the same login and the same settings for TLS. */
function alike(position, places, logins, encrypted, where, ask) {
  const [login] = logins
  if (!logins.every((each) => isSameLogin(each, login))) {
    refuse(position, 'a different login for each server of the cluster', `set it in ${where}`)
  }
  const [parameters] = encrypted
  if (!encrypted.every((each) => Boolean(each) === Boolean(parameters) && each?.join() === parameters?.join())) {
    refuse(position, 'different settings for TLS for the servers of the cluster', `set them in ${where}`)
  }
  return clusterOf(position, { places, encrypts: Boolean(parameters), parameters: parameters || [], login, ask })
}

/** Returns what ioredis reads from the URL, the address or the port of a server of a cluster. No URL turns on TLS here. */
function addressOf(position, given) {
  if (typeof given === 'number' || /^\d+$/.test(given)) return { port: given, host: '127.0.0.1' }
  const { tls, ...address } = addressOfUrl(position, given.includes('://') ? given : `redis://${given}`)
  return address
}

function addressOfUrl(position, text) {
  try {
    const { protocol, hostname, port, username, password, search } = new URL(text)
    if (!search) {
      const decoded = (part) => (part ? decodeURIComponent(part) : undefined)
      const login = username || password ? { username: decoded(username), password: decoded(password) } : {}
      const tls = protocol === 'rediss:' ? { tls: true } : {}
      return { host: hostname.replace(/^\[(.*)\]$/, '$1'), port: port || undefined, ...login, ...tls }
    }
  } catch {
    // The error has the text, which may contain a password.
    refuse(position, 'a URL that is not valid', 'correct it')
  }
  // ioredis takes any setting from there.
  return refuse(position, 'a URL with parameters', 'set them as options')
}

// node-redis

/** Returns a function that asks a credentials provider of node-redis. Undefined if there is none. */
function askOf(position, provider) {
  if (!provider) return undefined
  // node-redis sends no login without a password.
  const given = (login) => ({ username: login.username || undefined, password: login.password ?? '' })
  if (provider.type === 'async-credentials-provider') return async () => given(await provider.credentials())
  if (provider.type !== 'streaming-credentials-provider') {
    return refuse(position, 'a credentialsProvider of an unknown type', 'pass the option credentials')
  }
  return async () => {
    const [login, subscription] = await provider.subscribe({ onNext() {}, onError() {} })
    subscription.dispose()
    return given(login)
  }
}

function nodeRedis(position, { options = {} }) {
  const { socket = {}, database } = options
  const login = { login: loginOf(options), ask: askOf(position, options.credentialsProvider) }
  return serverOf(position, { socket, within: 'socket.', encrypts: socket.tls === true, database, ...login })
}

function nodeRedisCluster(position, { _options: { rootNodes, defaults = {}, nodeAddressMap } }) {
  if (nodeAddressMap) refuse(position, 'the option nodeAddressMap', 'quorlock uses the addresses that the cluster reports')
  if (defaults.url) refuse(position, 'a url in defaults', 'set the settings in it one by one')
  const nodes = rootNodes.map(({ url, socket, ...node }) => {
    const { host, port, tls, ...login } = url ? addressOfUrl(position, url) : {}
    if (url && !tls && { ...defaults.socket, ...socket }.tls) refuse(position, 'TLS, but a url without it', 'begin the url with rediss://')
    const own = url ? { host, port, tls: Boolean(tls) } : {}
    return { ...defaults, ...node, ...login, socket: { ...defaults.socket, ...socket, ...own } }
  })
  const encrypted = nodes.map(({ socket }) => {
    if (socket.tls === true) return tlsOf(position, socket, 'socket.')
    return checkSocket(position, socket, 'socket.')
  })
  const places = nodes.map(({ socket }) => placeOf(position, socket))
  return alike(position, places, nodes.map(loginOf), encrypted, 'defaults', askOf(position, defaults.credentialsProvider))
}

// Valkey GLIDE, whose clients keep their configuration in a property that its types declare private.

function glide(position, client) {
  const { addresses, useTLS, credentials, databaseId, advancedConfiguration } = client.config ?? {}
  if (!Array.isArray(addresses)) refuse(position, 'settings that this version of GLIDE does not show', URLS)
  if (credentials?.iamConfig) refuse(position, 'iamConfig', 'pass the option credentials')
  const { insecure, rootCertificates } = advancedConfiguration?.tlsAdvancedConfiguration ?? {}
  if (useTLS && rootCertificates && !insecure) refuse(position, 'rootCertificates', IN_MEMORY)
  const [encrypts, login] = [Boolean(useTLS), credentials && loginOf(credentials)]
  if (typeof client.fcallWithRoute === 'function') {
    const parameters = encrypts && insecure ? ['insecure=true'] : []
    const places = addresses.map((address) => placeOf(position, address))
    return clusterOf(position, { places, encrypts, parameters, login })
  }
  if (addresses.length !== 1) {
    refuse(position, 'the addresses of several servers', `a node is one server; ${URLS}, with the address of the primary`)
  }
  const socket = { ...addresses[0], rejectUnauthorized: !insecure }
  return serverOf(position, { socket, within: '', encrypts, database: databaseId, login })
}

/** Returns the function that reads this kind of client. Undefined for anything else. */
function readerOf(client) {
  if (typeof client !== 'object' || client === null) return undefined
  if (client.isCluster === true && Array.isArray(client.startupNodes)) return ioredisCluster
  if (typeof client.status === 'string' && typeof client.connector === 'object' && client.options) return ioredis
  if (typeof client.invokeScript === 'function' && typeof client.customCommand === 'function') return glide
  if (typeof client.isOpen !== 'boolean') return undefined
  if (Array.isArray(client._options?.rootNodes)) return nodeRedisCluster
  // Also true of pools, which have no options.
  return typeof client.sendCommand === 'function' && 'options' in client ? nodeRedis : undefined
}

/** Returns what is wrong with something whose settings cannot be read, and what to pass instead. */
function insteadOf(given) {
  if (typeof given?.isOpen === 'boolean') {
    const examples = 'redis-sentinel://HOST,HOST,HOST/SERVICE or redis-cluster://HOST,HOST'
    return `is a sentinel, a cluster or a pool of node-redis, whose settings are private; ${URLS}, such as ${examples}`
  }
  const kind = typeof given === 'string' ? 'a string' : (given?.constructor?.name ?? shown(given))
  const advice = typeof given === 'string' || given instanceof URL ? URLS : `for a client of another package, ${URLS}`
  return `must be a client of ioredis, node-redis or Valkey GLIDE, not ${kind}; ${advice}`
}

/** Returns the prefix that a client adds to keys. Empty if there is none. */
const prefixOf = ({ options, _options }) => String(options?.keyPrefix ?? _options?.keyPrefix ?? '')

/**
 * Returns the URLs of the nodes and the options for a client of quorlock. `connect` is called with the addresses of these
 * nodes when the client has been created.
 */
function nodesFrom(clients, options) {
  const given = Array.isArray(clients) ? clients : [clients]
  if (given.length === 0) throw new ConfigError('Client.from needs the clients of 1 or more nodes, and none are given')
  const nodes = given.map((client, index) => {
    const read = readerOf(client)
    if (!read) throw new ConfigError(`client ${index + 1} ${insteadOf(client)}`)
    if (prefixOf(client) && options.keyPrefix === undefined) {
      const keys = "pass the same keyPrefix to quorlock for the same keys, or keyPrefix: '' for none"
      refuse(index + 1, `the keyPrefix ${JSON.stringify(prefixOf(client))}`, keys)
    }
    return read(index + 1, client)
  })
  if (options.credentials !== undefined && options.credentials !== null) return { urls: nodes.map(({ bareUrl }) => bareUrl), options }
  if (!nodes.some(({ isAsked }) => isAsked)) return { urls: nodes.map(({ url }) => url), options }
  const asked = new Map()
  return {
    urls: nodes.map(({ bareUrl }) => bareUrl),
    options: { ...options, credentials: (address) => asked.get(address)() },
    connect: (addresses) => addresses.forEach((address, index) => asked.set(address, nodes[index].ask)),
  }
}

module.exports = { nodesFrom }
