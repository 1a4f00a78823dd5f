/** One node's part in an error. */
export interface NodeReport {
  /** The node's URL, without user and password. */
  readonly address: string
  /**
   * `pending`: it had not answered when the decision was made without it. `unreachable`: there was
   * no connection. `disconnected`: the connection broke before the answer came. `guarded`: it may
   * have restarted not long ago, see `restartGuard`. `duplicate`: it is the same server as another
   * node. From `loading` to `refused`: it answered with an error, `refused` being any other one.
   */
  readonly outcome:
    | 'granted'
    | 'held'
    | 'confirmed'
    | 'missing'
    | 'timeout'
    | 'disconnected'
    | 'unreachable'
    | 'guarded'
    | 'duplicate'
    | 'loading'
    | 'readonly'
    | 'masterdown'
    | 'oom'
    | 'misconf'
    | 'noperm'
    | 'refused'
    | 'pending'
  /** More about it, such as the server's error text; may be empty. */
  readonly detail: string
}

/** The base of all errors of quorlock. */
export class QuorlockError extends Error {
  /** What kind of error it is, such as `NO_QUORUM`: the same in every language. */
  readonly code: string
  /** The first of `resources`. */
  readonly resource: string | undefined
  /** The resources it is about; empty if it is about none. */
  readonly resources: readonly string[]
  /** What became of the request at each node; empty if none was asked. */
  readonly nodes: readonly NodeReport[]
}

/** A bad URL, option or node list. */
export class ConfigError extends QuorlockError {
  readonly code: 'CONFIG'
}

/** Others held the lock for the whole `wait`. */
export class LockTimeoutError extends QuorlockError {
  readonly code: 'TIMEOUT'
}

/** Too few nodes could vote: unreachable, timed out, guarded or refusing. */
export class QuorumError extends QuorlockError {
  readonly code: 'NO_QUORUM'
}

/** The lease ended before the work did. */
export class LeaseLostError extends QuorlockError {
  readonly code: 'LEASE_LOST'
}

/** The client is closed. */
export class ClosedError extends QuorlockError {
  readonly code: 'CLOSED'
}

/**
 * What is locked: a string of Unicode characters that is not empty, or 1 to 64 different ones. Several
 * are locked all or none, by one request to each node. Their order does not matter: locks that overlap
 * cannot block one another for ever.
 */
type Resources = string | readonly string[]

/** What a client sets for all its locks, and a lock for itself. */
interface SharedOptions {
  /** How long the nodes keep a lock that is not extended, in ms: 10 to 86,400,000. 10,000 by default. */
  ttl?: number | undefined
  /**
   * How long an acquire waits while others hold the lock, in ms: 0 for one try, `null` or `Infinity`
   * for ever. 10,000 by default.
   */
  wait?: number | null | undefined
  /** Whether the lease is extended, at each third of the ttl, until it is released. True by default. */
  autoExtend?: boolean | undefined
  /**
   * How long a lease can be held at most, however it is extended, in ms: 10 or more, `null` or
   * `Infinity` for ever. 3,600,000 by default. The first `ttl` is not cut short by it.
   */
  maxHold?: number | null | undefined
}

/** Options of a client. Durations in milliseconds. */
export interface ClientOptions extends SharedOptions {
  /**
   * How long one node may take to answer one request: 1 to 3,600,000. By default (`null`) a
   * twentieth of the ttl, but at least 10 and at most 200.
   */
  nodeTimeout?: number | null | undefined
  /**
   * How long connecting to a node may take, and for how long an acquire or extension that meets too
   * few nodes tries again: 1 to 3,600,000. 1,000 by default.
   */
  connectTimeout?: number | undefined
  /** By how much clocks may differ in rate: 0 to 0.5. 0.01 (one per cent) by default. */
  driftFactor?: number | undefined
  /**
   * The range of the random delay between two tries of a waiter that no node calls: 1 to 3,600,000.
   * [50, 200] by default. The shorter one is also for how long a waiter that is called goes first.
   */
  retryDelay?: readonly [shortest: number, longest: number] | undefined
  /**
   * For how long a node that has restarted does not count: 10 to 86,400,000, and not shorter than any
   * ttl that any client uses; `null` or 0 for off, the default.
   */
  restartGuard?: number | null | undefined
  /** What the keys on the nodes begin with, before the resource. Nothing by default. */
  keyPrefix?: string | undefined
}

/** Options of a lock. Durations in milliseconds. */
export interface LockOptions extends SharedOptions {
  /** Aborts the waiting: the promise is rejected with the signal's reason, and no key stays behind. */
  signal?: AbortSignal | undefined
}

/**
 * A held lock. Whoever has the lease owns it. It is extended automatically (unless `autoExtend` is
 * off) until it is released, or has been held for `maxHold`. A lease does not keep the process alive.
 *
 * One that is garbage-collected while it is valid is not released: it is extended no more, its key stays
 * on the nodes until it expires, and `process.emitWarning` is called with a {@link DroppedWarning}. Once
 * `signal` was read, the lease is kept until it is lost or released.
 */
export class Lease implements AsyncDisposable {
  private constructor()
  /** What is locked, in the order given. */
  readonly resources: readonly string[]
  /**
   * The value of the key on the nodes: 40 hexadecimal digits, different for every lease, and the same
   * for all of its resources.
   */
  readonly token: string
  /**
   * The fencing token: larger than that of every earlier lease of the resource, below 2^53. Send it
   * with every write, and let the storage refuse a smaller one than it has seen. Throws
   * {@link ConfigError} for a lease of several resources: they have `fences`.
   */
  readonly fence: number
  /**
   * The fencing token of each resource; see `fence`. A frozen object without a prototype, so that a
   * resource may have any name, such as `__proto__`; a new one each time.
   */
  readonly fences: Readonly<Record<string, number>>
  /** Whether the lock is held now, by the local clock. Once `false`, it stays so. */
  readonly valid: boolean
  /** How many more milliseconds the lease is valid, if it is not extended; 0 if it is not. */
  readonly remaining: number
  /**
   * Aborts when the lease is lost, at its validity end at the latest, with the {@link LeaseLostError} as
   * its reason. Not when it is released. `aborted` is true as soon as the lease is lost, also while the
   * event loop is held up; the event follows in a later turn of the event loop, so a listener that is
   * added in the turn in which the signal was read is always called.
   */
  readonly signal: AbortSignal
  /** Throws {@link LeaseLostError}, with the reason, unless the lease is valid. */
  check(): void
  /**
   * Extends the lease to `ttl` ms from now (10 to 86,400,000), or by the ttl it was acquired with.
   * It is never made shorter, and never extended beyond `maxHold`. Rejects with
   * {@link LeaseLostError} if the lease is over, and with {@link QuorumError} if too few nodes
   * confirm, and still do not after `connectTimeout`: the lease then stands as it was.
   */
  extend(ttl?: number): Promise<void>
  /**
   * Releases the lock; it is not valid from this call on. `true` if it was valid until now and a
   * majority of the nodes confirms it; `false` if it was lost or released before, or if too few
   * nodes confirm within a third of the ttl (at most 10 s, at least `nodeTimeout`). Never rejects: the
   * lock is given up in any case.
   */
  release(): Promise<boolean>
  /** Releases the lock. Rejects with {@link LeaseLostError} if the lease was lost meanwhile. */
  [Symbol.asyncDispose](): Promise<void>
}

/** The warning of a lease that was garbage-collected while it was valid: see {@link Lease}. */
export interface DroppedWarning extends Error {
  readonly name: 'QuorlockWarning'
  readonly code: 'LEASE_DROPPED'
  /** The first of `resources`. */
  readonly resource: string
  /** What is locked. */
  readonly resources: readonly string[]
  /** The fencing token of the first resource. */
  readonly fence: number
}

/** One thing that the doctor looked at. */
export interface Finding {
  /**
   * `warning`: the lock works, but a promise hangs on something that may fail, or it was not
   * permitted to look. `error`: the node cannot vote, or a promise of the lock does not hold.
   */
  readonly level: 'ok' | 'warning' | 'error'
  /** What was looked at, in a word, such as `eviction`. */
  readonly check: string
  /** What was found, and what can go wrong. */
  readonly message: string
  /** What to do; empty where nothing is to be done. */
  readonly advice: string
}

/**
 * What the doctor found at one node. What could not be seen is `null`. Of a cluster, the findings are those at
 * all masters that the client has keys on, the rest is told of one of them.
 */
export interface NodeDiagnosis {
  /** The node's URL, without user and password. */
  readonly address: string
  /** Whether it answered. */
  readonly reachable: boolean
  /** The median of a few round trips. */
  readonly latencyMs: number | null
  /** `Redis`, `Valkey`, or whatever else it calls itself; `memory` for a node in this process. */
  readonly kind: string | null
  /** Of the server. */
  readonly version: string | null
  /** Names the server process. */
  readonly runId: string | null
  /** How long the server process has been up, by its own account. */
  readonly uptimeSeconds: number | null
  /** `master` or `slave`. */
  readonly role: string | null
  /** How many are connected to it. */
  readonly replicas: number | null
  /** Whether it is a node of a Redis Cluster. */
  readonly cluster: boolean | null
  /** In bytes; 0 for no limit. */
  readonly maxmemory: number | null
  /** In bytes. */
  readonly usedMemory: number | null
  /** What it does when its memory is used up; a lock needs `noeviction`. */
  readonly maxmemoryPolicy: string | null
  /** Whether it writes to a file what it is told. */
  readonly appendonly: boolean | null
  /** `always`, `everysec` or `no`. */
  readonly appendfsync: string | null
  /** How far its clock is ahead of that of this machine. */
  readonly clockOffsetMs: number | null
  /** The number of the database that is used. */
  readonly database: number
  /** Whether the connection is encrypted. */
  readonly tls: boolean
  /** The commands that quorlock uses. */
  readonly permissions: Readonly<Record<string, 'allowed' | 'denied'>>
  readonly findings: readonly Finding[]
}

/** What the doctor found. `String()` of it is a readable text. */
export class Diagnosis {
  private constructor()
  /** The worst level of all findings. */
  readonly level: Finding['level']
  /** What concerns the nodes together. */
  readonly findings: readonly Finding[]
  /** The nodes, in the order in which the client was given them. */
  readonly nodes: readonly NodeDiagnosis[]
  /** A readable text. */
  toString(): string
}

/** How often something took how long. */
export interface Histogram {
  /** How often. */
  readonly count: number
  /** How long all together, in seconds. */
  readonly sum: number
  /** The upper bound of each bucket but the last, in seconds: the same for all histograms. */
  readonly bounds: readonly number[]
  /**
   * How often it took as long as this bucket says, which means longer than the bound before it, and not
   * longer than its own. The last one has no bound.
   */
  readonly counts: readonly number[]
}

/** What became of the requests to one node. */
export interface NodeStats {
  /** The node's URL, without user and password. */
  readonly address: string
  /**
   * Its connection, now: `idle` before anything was asked of it, `connecting` with a chance of success,
   * `up`, `down` (it is tried again), or `closed` with the client.
   */
  readonly state: 'idle' | 'connecting' | 'up' | 'down' | 'closed'
  /** How often it was connected again after a connection had broken or was given up. */
  readonly reconnects: number
  /**
   * How many requests had this outcome; those that none had are left out. An extension of many
   * leases is one request.
   */
  readonly outcomes: Readonly<Partial<Record<NodeReport['outcome'], number>>>
  /** How long answers took. Requests that had none are in `outcomes` only. */
  readonly answerSeconds: Histogram
}

/**
 * What a client has counted in this process since it was first used here. The counts are read one after
 * the other while others go on, so they need not add up to the last one.
 */
export interface Stats {
  /** Acquires that were begun. */
  readonly attempts: number
  /** Acquires that won: leases. */
  readonly wins: number
  /** Acquires that ended with {@link LockTimeoutError}: others held it for the whole `wait`. */
  readonly timeouts: number
  /** Acquires that ended with {@link QuorumError}. */
  readonly noQuorum: number
  /** Acquires that ended otherwise: cancelled, by the end of the client, or by a mistake in its nodes. */
  readonly cancelled: number
  /** Rounds of requests that acquires took. As many as attempts if nobody had to wait. */
  readonly rounds: number
  /** Leases that were valid until they were released. */
  readonly releases: number
  /** Leases that were valid until their client was closed. */
  readonly closed: number
  /**
   * Leases that were garbage-collected while valid, without being released. Their keys stay on the nodes
   * until they expire.
   */
  readonly dropped: number
  /** Leases that were lost. */
  readonly losses: number
  /** Extensions that a majority confirmed. */
  readonly extensions: number
  /** Extensions that a majority did not confirm. Another one may have been tried. */
  readonly extensionFailures: number
  /** Leases that are held now. */
  readonly held: number
  /**
   * Acquires that are under way now and wait for others, or will if they do not win at once: the length
   * of all lines together.
   */
  readonly waiting: number
  /** How long acquires that won took, in all. */
  readonly acquireSeconds: Histogram
  /** How long acquires took that others kept waiting, won or not. */
  readonly waitSeconds: Histogram
  /** How long leases were held, until they were released, dropped or lost. */
  readonly holdSeconds: Histogram
  /** How long extensions took that a majority confirmed. */
  readonly extensionSeconds: Histogram
  /** The nodes, in the order in which the client was given them. */
  readonly nodes: readonly NodeStats[]
}

/** A metric, for exporters; see `quorlock/prometheus` and `quorlock/opentelemetry`. */
export interface Metric {
  /** Its name by the conventions of Prometheus, but without the `_total` of a counter. */
  readonly name: string
  readonly kind: 'counter' | 'gauge' | 'histogram'
  /** What it says. */
  readonly help: string
  readonly samples: readonly {
    /** What tells it from the others: names and values. */
    readonly labels: readonly (readonly [name: string, value: string])[]
    readonly value: number | Histogram
  }[]
}

/**
 * What is published on the diagnostics channels `quorlock:error`, `:warn`, `:info`, `:debug` and `:trace`:
 * what happened to nodes and leases. The further fields depend on the `name`.
 */
export interface LogRecord {
  readonly level: 'error' | 'warn' | 'info' | 'debug' | 'trace'
  /** What it is about: `quorlock::node`, `quorlock::lease`, `quorlock::acquire` or `quorlock::waiting`. */
  readonly target: string
  /** What kind of event it is, such as `node.down`. */
  readonly name: string
  /** What happened, with the fields, in one line. */
  readonly message: string
  readonly time: Date
  /** The node's URL, without user and password. */
  readonly node?: string
  /** What is locked. */
  readonly resource?: string
  readonly fence?: number
  /** What became of it, in a word. */
  readonly outcome?: string
  readonly [field: string]: unknown
}

/**
 * A client of N independent Redis or Valkey masters. Nothing is connected, and no thread is started,
 * before the first lock. An idle client does not keep the process alive.
 */
export class Client implements AsyncDisposable {
  /**
   * `nodes` are URLs: `redis://[user:password@]host[:port][/database]`, `rediss://…` with TLS,
   * `redis-sentinel://host,…/service`, `redis-cluster://host,…`, `unix:///path[?db=…]`, or
   * `memory://name` for a node in this process, which is for tests. Without it they are taken from
   * the environment variable `QUORLOCK_NODES`, separated by commas.
   *
   * Throws {@link ConfigError} for a bad URL, option or node list, and for options that are not a plain
   * object.
   */
  constructor(nodes?: readonly string[], options?: ClientOptions)
  /**
   * Acquires the lock, waiting for up to `wait` while others hold it. Rejects with
   * {@link LockTimeoutError} if they held it for all of it, and with {@link QuorumError} if too few
   * nodes can vote, and still cannot after `connectTimeout`, and with {@link ConfigError} for no
   * resource, one that is empty or named twice, a bad option, or options that are not a plain object.
   */
  lock(resources: Resources, options?: LockOptions): Promise<Lease>
  /**
   * Holds the lock while `work` runs, and returns its result. Rejects with {@link LeaseLostError} if
   * the lease was lost meanwhile, unless `work` threw: its error is never replaced. Rejects with
   * {@link ConfigError} if `work` is not a function, or returns a generator: that would run after the lock
   * is released.
   */
  using<T>(resources: Resources, work: (lease: Lease) => T | PromiseLike<T>): Promise<T>
  using<T>(
    resources: Resources,
    options: LockOptions,
    work: (lease: Lease) => T | PromiseLike<T>,
  ): Promise<T>
  /**
   * Whether somebody holds so many nodes that the lock could not be acquired now; of several
   * resources, any of them. Rejects with {@link QuorumError} if too few nodes answer to tell.
   */
  locked(resources: Resources): Promise<boolean>
  /** What became of locks, and of the requests to each node, counted in this process. */
  stats(): Stats
  /** The same as metrics, for exporters. */
  metrics(): Metric[]
  /**
   * Looks at all nodes, and says what is amiss with them: what cannot vote, and what may break a
   * promise of the lock. It changes nothing on them, and takes at most `connectTimeout` to connect
   * and as long again to look. Rejects with {@link ClosedError} on a closed client, and nothing else.
   */
  doctor(): Promise<Diagnosis>
  /**
   * Closes the client: leases that are still held end and are released, acquires under way end with
   * {@link ClosedError}, the connections are closed. Waits for the nodes for at most
   * `connectTimeout`. May be called again.
   */
  close(): Promise<void>
  /** {@link Client.close}, at the end of an `await using` block. */
  [Symbol.asyncDispose](): Promise<void>
}
