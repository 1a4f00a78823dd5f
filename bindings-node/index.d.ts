/// <reference lib="esnext.disposable" />

/** The outcome of an operation at one node. */
export interface NodeReport {
  /** The node's URL, without user and password. */
  readonly address: string
  /**
   * `granted`, `confirmed`: the node agreed. `held`: others hold the lock there. `missing`: it does
   * not have the lease's key. `timeout`: it did not answer within `nodeTimeout`. `pending`: it had
   * not answered when the result was already decided. `unreachable`: there was no connection.
   * `disconnected`: the connection broke before the answer came. `guarded`: it may have restarted
   * recently, see `restartGuard`. `duplicate`: it is the same server as another node. `loading` to
   * `refused`: it answered with an error; `refused` stands for any error that has no name in this
   * list.
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
  /** Details, such as the server's error text; may be empty. */
  readonly detail: string
}

/**
 * The base class of all errors of quorlock. `message` says what happened and counts the outcomes. It does not contain
 * the addresses of the nodes, because web frameworks send it to their clients. The answer of each node is in `nodes`.
 * Loggers and `JSON.stringify` show `name`, `code`, `message`, `resources` and `nodes`.
 */
export class QuorlockError extends Error {
  /** The error code, such as `NO_QUORUM`. It is the same in every language. */
  readonly code: string
  /** The first of `resources`. */
  readonly resource: string | undefined
  /** The resources that the error is about; may be empty. */
  readonly resources: readonly string[]
  /** The outcome at each node; empty if no request was sent. */
  readonly nodes: readonly NodeReport[]
}

/** A URL, option, node list, resource or argument is invalid. */
export class ConfigError extends QuorlockError {
  readonly code: 'CONFIG'
}

/** Others held the lock for the whole `wait`. */
export class LockTimeoutError extends QuorlockError {
  readonly code: 'TIMEOUT'
  /**
   * The name that the holder has set, for display only. `undefined` if the holder has no name, if another program or
   * an earlier version of quorlock holds the lock, or if no single name is the most frequent one in the nodes' answers.
   */
  readonly holder: string | undefined
}

/** Too few nodes could vote: the others were unreachable, timed out, were guarded or refused. */
export class QuorumError extends QuorlockError {
  readonly code: 'NO_QUORUM'
}

/** The lease was lost, or was used after it had ended. */
export class LeaseLostError extends QuorlockError {
  readonly code: 'LEASE_LOST'
  /**
   * Why a lease of this client ended: `expired` (it was not extended in time), `max_hold`, `no_heartbeat` (see
   * `heartbeatTimeout`), `taken` (a majority of the nodes does not hold it any more), `closed`, `released`, `detached` or
   * `upgraded`. `undefined` if the error is about a lease of another client.
   */
  readonly reason:
    | 'expired'
    | 'max_hold'
    | 'no_heartbeat'
    | 'taken'
    | 'closed'
    | 'released'
    | 'detached'
    | 'upgraded'
    | undefined
}

/** The client is closed. */
export class ClosedError extends QuorlockError {
  readonly code: 'CLOSED'
}

/**
 * What to lock: a non-empty string without lone surrogates, or an array of 1 to 64 different ones. Several
 * resources are locked all or none, with one request to each node. Their order does not matter: locks that
 * overlap cannot deadlock.
 */
type Resources = string | readonly string[]

/** Options that a client sets for all its locks, and that a lock may override. Durations in milliseconds. */
interface CommonOptions {
  /**
   * The time in ms for which the nodes keep a lock that is not extended: 10 to 86,400,000. Default:
   * 10,000.
   */
  ttl?: number | undefined
  /**
   * The maximum time in ms that an acquire waits while others hold the lock: 0 for a single
   * attempt, `null` or `Infinity` for no limit. Default: 10,000.
   */
  wait?: number | null | undefined
  /** Whether the lease is renewed, every third of the ttl, until it is released. Default: true. */
  autoExtend?: boolean | undefined
  /**
   * The lease is renewed only while its last heartbeat is younger than this, in ms, so a holder that hangs loses the lock:
   * see {@link Lease.heartbeat}. 10 to 86,400,000; `null` or 0 renews it without heartbeats. Default: `null`.
   */
  heartbeatTimeout?: number | null | undefined
  /**
   * The maximum time in ms that a lease can be held, including all extensions: 10 or more, `null`
   * or `Infinity` for no limit. Default: 3,600,000. A limit that you set is also one for the `ttl`.
   */
  maxHold?: number | null | undefined
  /**
   * The name that others see while they wait for the lease: at most 128 bytes in UTF-8, without control characters.
   * Empty for none. Default (`null`): `hostname:pid` of the process.
   */
  holder?: string | null | undefined
  /**
   * The time in ms from the release for which the nodes keep the key, so that nobody else acquires the lock before: 10
   * to 86,400,000; `null` or 0 deletes the key. Default: `null`.
   */
  keep?: number | null | undefined
}

/** Options of a client. Durations in milliseconds. */
export interface ClientOptions extends CommonOptions {
  /**
   * The maximum time that one node may take to answer one request: 1 to 3,600,000. Default
   * (`null`): a twentieth of the ttl, but at least 10 and at most 200.
   */
  nodeTimeout?: number | null | undefined
  /**
   * The maximum time that connecting to a node may take: 1 to 3,600,000. While too few nodes can vote,
   * an acquire or extension keeps trying for this time, and an acquire for at most `wait`. Default: 1,000.
   */
  connectTimeout?: number | undefined
  /**
   * The maximum relative difference between the rates of clocks: 0 to 0.5. Default: the environment variable
   * `QUORLOCK_DRIFT_FACTOR`, or 0.01 (1 %).
   */
  driftFactor?: number | undefined
  /**
   * The range of the random delay between two attempts of a waiter that no node notifies: 1 to
   * 3,600,000, by default [50, 200]. A notified waiter has priority over other waiters for a time
   * equal to the shorter delay.
   */
  retryDelay?: readonly [shortest: number, longest: number] | undefined
  /**
   * The time for which the votes of a restarted node do not count: 10 to 86,400,000, and not
   * shorter than any ttl that any client uses; `null` or 0 for off. Default: the environment variable
   * `QUORLOCK_RESTART_GUARD`, such as `30s`, or off. Clients of `memory://` nodes only do not read the environment.
   */
  restartGuard?: number | null | undefined
  /**
   * The prefix of the keys on the nodes, before the resource. Default: the environment variable `QUORLOCK_KEY_PREFIX`, or
   * empty.
   */
  keyPrefix?: string | undefined
  /**
   * A function that returns the user and the password for each new connection to a node, instead of the node's URL. Its
   * argument is the node's address, as in the reports of errors. Called on the event loop; must return within
   * `connectTimeout`. Default: none.
   */
  credentials?: ((address: string) => Credentials | PromiseLike<Credentials>) | null | undefined
}

/** A client of ioredis (`Redis`, `Cluster`), node-redis (`createClient`, `createCluster`) or Valkey GLIDE. */
export type ExistingClient = { disconnect(): unknown } | { close(): unknown }

/** A user and a password for a connection to a node. */
export interface Credentials {
  /** Default: the server's default user. */
  username?: string | null | undefined
  password: string
}

/** How a lock holds a resource: alone, or together with others in shared mode. */
export type Mode = 'exclusive' | 'shared'

/** Options of a lock. Durations in milliseconds. */
export interface LockOptions extends CommonOptions {
  /**
   * `exclusive`: nobody else holds the resource at the same time. `shared`: any number of holders share it, and none
   * holds it exclusively. An object sets the mode of each resource; those that it does not name are exclusive. Default:
   * `exclusive`.
   */
  mode?: Mode | Readonly<Record<string, Mode | undefined>> | undefined
  /** Cancels the acquire: the promise rejects with the signal's reason, and no key is left on the nodes. */
  signal?: AbortSignal | undefined
}

/** Options of a semaphore. Durations in milliseconds. */
export interface SemaphoreOptions extends CommonOptions {
  /** The largest number of permits that are held at the same time: 1 to 1,024. All clients should use the same. */
  limit: number
  /** The number of permits that each acquire gets, all or none: 1 to the limit. Default: 1. */
  permits?: number | undefined
}

/** Options of one acquire of a semaphore. */
export interface SemaphoreAcquireOptions {
  /** Cancels the acquire: the promise rejects with the signal's reason, and no permit stays held on the nodes. */
  signal?: AbortSignal | undefined
  /** The maximum time in ms to wait while others hold too many permits. Default: that of the semaphore. */
  wait?: number | null | undefined
  /** The number of permits, all or none: 1 to the limit. Default: that of the semaphore. */
  permits?: number | undefined
}

/**
 * The permits of a resource, of which at most `limit` are held at the same time, by all clients together. It holds nothing
 * until it is acquired; each acquire has a lease of its own. Created by {@link Client.semaphore}.
 *
 * The permits are independent of the lock on the same resource. Semaphores are not re-entrant: code that acquires twice
 * gets two permits, or waits for itself.
 */
export class Semaphore {
  private constructor()
  /** The resource whose permits are acquired. */
  readonly resource: string
  /** The largest number of permits that are held at the same time. */
  readonly limit: number
  /** The number of permits that each acquire gets by default. */
  readonly permits: number
  /**
   * Acquires the permits, all or none. Waits for up to `wait` while others hold too many. Waiters are served in the order of
   * their arrival, so that one that wants several permits is not overtaken forever. {@link Lease.slots} has the numbers of
   * the permits.
   *
   * Rejects with {@link LockTimeoutError} if others held too many permits for the whole `wait`, with {@link QuorumError} if
   * too few nodes can vote and still cannot after `connectTimeout` or `wait`, whichever is shorter, with
   * {@link ConfigError} for an invalid option, and with {@link ClosedError} if the client is closed.
   */
  acquire(options?: SemaphoreAcquireOptions): Promise<Lease>
  /**
   * Tries once to acquire the permits, without waiting. Resolves to `null` if others hold too many, or if several clients
   * try at the same time and none of them gets a majority. Otherwise, it works like `acquire`.
   */
  tryAcquire(options?: Pick<SemaphoreAcquireOptions, 'signal'>): Promise<Lease | null>
  /**
   * Holds the permits while `work` runs, and resolves to its result. Rejects like {@link Client.using}.
   */
  using<T>(work: (lease: Lease) => T | PromiseLike<T>): Promise<T>
  using<T>(
    options: SemaphoreAcquireOptions | undefined,
    work: (lease: Lease) => T | PromiseLike<T>,
  ): Promise<T>
  /**
   * Asks all nodes who holds the permits, how many are free, and how many clients wait. Changes nothing on the nodes. The
   * result may be out of date when it arrives. Rejects with {@link QuorumError} if fewer than a majority of the nodes
   * answer, and with {@link ClosedError} if the client is closed.
   */
  status(): Promise<SemaphoreStatus>
}

/**
 * A held lock. Any code that has the lease can use, extend and release it. It is renewed automatically
 * (unless `autoExtend` is false) until it is released, or has been held for `maxHold`. A lease does not
 * keep the process alive.
 *
 * A lease that is garbage-collected while valid is not released: renewal stops, its key stays on the nodes
 * until it expires, and `process.emitWarning` is called with a {@link DroppedWarning}. Once `signal` has
 * been read, the lease is not garbage-collected until it is lost or released.
 *
 * A lease cannot be sent to another thread: `postMessage` and `structuredClone` throw a `DataCloneError`.
 */
export class Lease implements AsyncDisposable {
  private constructor()
  /** The first of `resources`, which is the only one unless several were locked together. */
  readonly resource: string
  /** The locked resources, in the order given. */
  readonly resources: readonly string[]
  /**
   * The value of the key on the nodes: 40 random hexadecimal digits and, if the lease has a name, `;` and the
   * name. Unique to the lease, and the same for all of its resources. It is a secret: anyone who has it can release
   * the lock.
   */
  readonly token: string
  /** The name that others see while they wait for this lease; empty if it has none. */
  readonly holder: string
  /**
   * The fencing token: larger than that of every earlier lease of the resource, below 2^53. Send it
   * with every write, and let the storage refuse a smaller one than it has seen. Permits of a
   * semaphore have an order for each slot only: let the storage keep the largest fence of each. Throws
   * {@link ConfigError} for a lease of several resources: use `fences`.
   */
  readonly fence: number
  /**
   * The fencing token of each resource; see `fence`. A frozen object without a prototype, so that a
   * resource may have any name, such as `__proto__`. Each read returns a new object.
   */
  readonly fences: Readonly<Record<string, number>>
  /**
   * The numbers of the permits of a semaphore, in ascending order: each is 0 to `limit` - 1, and no other valid lease of the
   * semaphore has it, so it can serve as the number of a worker. Empty for a lease of a lock.
   */
  readonly slots: readonly number[]
  /** The only one of `slots`. Throws {@link ConfigError} if there are several, or none because it is a lease of a lock. */
  readonly slot: number
  /** The mode of the resources; `null` if it is not the same for all of them. */
  readonly mode: Mode | null
  /** The mode of each resource. A frozen object without a prototype, like `fences`. */
  readonly modes: Readonly<Record<string, Mode>>
  /** The ttl in ms with which the lease was acquired. `extend` does not change it. */
  readonly ttl: number
  /** Whether the lock is held now, by the local clock. Once `false`, it never becomes `true` again. */
  readonly valid: boolean
  /**
   * The time in ms for which the lease stays valid without another extension; 0 once it has ended.
   */
  readonly remaining: number
  /**
   * Aborts when the lease is lost, at its validity end at the latest, with the {@link LeaseLostError} as
   * its reason. Does not abort when the lease is released or detached. `aborted` is true as soon as the lease is lost,
   * even while the event loop is blocked. The event follows in a later turn of the event loop, so a
   * listener added in the turn in which the signal was read is always called.
   */
  readonly signal: AbortSignal
  /** Throws {@link LeaseLostError} with the reason unless the lease is valid. Counts as a heartbeat. */
  check(): void
  /**
   * Reports that the work under the lock still goes on. If the lock has a `heartbeatTimeout`, the lease is renewed only
   * while its last heartbeat is younger than that. `check` and `extend` count as heartbeats, and the acquire is the first
   * one. Sends nothing.
   *
   * If the renewal has stopped for lack of a heartbeat, and the lease is still valid, it is renewed at once. Throws
   * {@link LeaseLostError} with the reason unless the lease is valid.
   */
  heartbeat(): void
  /**
   * Yields the items, and calls `heartbeat` before each of them:
   *
   * ```js
   * for await (const row of lease.heartbeats(rows)) await migrate(row)
   * ```
   *
   * Rejects with {@link LeaseLostError} instead of yielding the next item if the lease has ended. If the items are
   * promises, yields their values.
   */
  heartbeats<T>(items: Iterable<T> | AsyncIterable<T>): AsyncGenerator<Awaited<T>, void, undefined>
  /**
   * Extends the lease to `ttl` ms from now (10 to 86,400,000); by default, the ttl it was acquired with.
   * Never shortens it, and never extends it beyond `maxHold`. Rejects with {@link LeaseLostError} if the
   * lease is over, and with {@link QuorumError} if too few nodes confirm within `connectTimeout`: the
   * validity of the lease is then unchanged.
   */
  extend(ttl?: number): Promise<void>
  /**
   * Keeps an exclusive lease in shared mode from now on, with the same fence, and lets others share it. A lease of several
   * resources is then shared for all of them. Does nothing if the lease is shared already.
   *
   * Resolves when a majority of the nodes has answered, or all have had `nodeTimeout` for it. The others follow when the
   * lease is extended. Rejects with {@link LeaseLostError} if the lease has ended.
   */
  downgrade(): Promise<void>
  /**
   * Tries once to make a shared lease exclusive. If nobody else reads, resolves to an exclusive lease with a larger
   * fence, and this one ends; it does not count as lost. If others read one of the resources, resolves to `null`, and this
   * lease stays as it is.
   *
   * It never waits for the other readers: two readers that waited for each other would wait forever. To wait, release the
   * lease and acquire an exclusive one; others may have written in between.
   *
   * The lease is not renewed during the try. Rejects with {@link LeaseLostError} if it has ended, with
   * {@link QuorumError} if too few nodes can vote, and with {@link ConfigError} for an exclusive lease.
   */
  tryUpgrade(): Promise<Lease | null>
  /**
   * Gives the lease up, so that another client can adopt it, in any process and language. Resolves to the text to
   * pass to {@link Client.adopt}. It is a secret: anyone who has it, and access to the nodes, can adopt the lease.
   *
   * Extends the lease to at least `within` ms from now, but not beyond `maxHold`: an adopter has this time. Then the
   * lease ends: it is not valid and not renewed any more, and does not count as lost. The resource stays locked until
   * an adopter releases it, or until the time is over.
   *
   * `within` is 10 to 86,400,000, at most `restartGuard`; by default 30,000, or `restartGuard` if that is shorter.
   * Rejects with {@link LeaseLostError} if the lease has ended, and with {@link QuorumError} if too few nodes confirm
   * within `connectTimeout`; the lease is then unchanged.
   */
  detach(options?: { within?: number | undefined }): Promise<string>
  /**
   * Hands the lease over to the candidate of an election that has this holder name, without a time in between in which
   * nobody holds the lock: see {@link Client.elect}. Resolves to whether that candidate has taken it over.
   *
   * If no node knows of such a candidate, resolves to `false`, and the lease stays valid. Otherwise, the lease ends as in
   * `detach`: finish all writes first. If then the candidate does not take over for `within` ms, or is gone, the lock is
   * released, and the promise resolves to `false`.
   *
   * `within` is 10 to 86,400,000, at most `restartGuard`; by default the ttl of the lease. Rejects with
   * {@link LeaseLostError} if the lease has ended, with {@link QuorumError} if too few nodes confirm within
   * `connectTimeout`; the lease is then unchanged. Rejects with {@link ConfigError} for a lease of several resources, a
   * shared lease, and a lease of a semaphore.
   */
  handOver(successor: string, options?: { within?: number | undefined }): Promise<boolean>
  /**
   * Releases the lock. The lease is not valid from this call on. Resolves to `true` if it was valid until
   * now and a majority of the nodes confirms the release; to `false` if it was lost or released before, or
   * if too few nodes confirm within a third of the ttl (at most 10 s, at least `nodeTimeout`).
   *
   * With `keep`, the nodes keep the key for so long (in ms) from now on, so that nobody else acquires the lock before;
   * see {@link LockOptions}. By default, the `keep` of the lock. A lease that was lost keeps nothing.
   *
   * Rejects only with {@link ConfigError}, for an invalid `keep`; the lease is not released then.
   */
  release(options?: { keep?: number | null | undefined }): Promise<boolean>
  /**
   * Releases the lock, at the end of an `await using` block. Rejects with {@link LeaseLostError} if the lease
   * was lost.
   */
  [Symbol.asyncDispose](): Promise<void>
}

/** A leader, as an observer sees it. A hint: the leader may be gone already. */
export interface Leader {
  /** The name of the leader; empty if it has none. */
  readonly holder: string
  /** The fencing token of the leader's lease. */
  readonly fence: number
}

/** The warning emitted when a lease is garbage-collected while valid: see {@link Lease}. */
export interface DroppedWarning extends Error {
  readonly name: 'QuorlockWarning'
  readonly code: 'LEASE_DROPPED'
  /** The first of `resources`. */
  readonly resource: string
  /** The locked resources, in the order given. */
  readonly resources: readonly string[]
  /** The fencing token of the first resource. */
  readonly fence: number
}

/** The result of one check of the doctor. */
export interface Finding {
  /**
   * `warning`: the lock works, but a guarantee depends on something that may fail, or the check was not
   * permitted. `error`: the node cannot vote, or a guarantee of the lock does not hold.
   */
  readonly level: 'ok' | 'warning' | 'error'
  /** The name of the check, such as `eviction`. */
  readonly check: string
  /** What was found, and what can go wrong. */
  readonly message: string
  /** What to do about it; empty if nothing needs to be done. */
  readonly advice: string
}

/**
 * The state of one node, as the doctor found it. A value that could not be read is `null`. For a
 * Redis Cluster, the findings cover all masters on which the client has keys; the other fields
 * describe one of them.
 */
export interface NodeDiagnosis {
  /** The node's URL, without user and password. */
  readonly address: string
  /** Whether the node answered. */
  readonly reachable: boolean
  /** The median of a few round trips, in milliseconds. */
  readonly latencyMs: number | null
  /** `Redis`, `Valkey` or another name that the server reports; `memory` for a node in this process. */
  readonly kind: string | null
  /** The version of the server. */
  readonly version: string | null
  /** The server's `run_id`, which identifies the server process. */
  readonly runId: string | null
  /** The uptime of the server process in seconds, as the server reports it. */
  readonly uptimeSeconds: number | null
  /** `master` or `slave`. */
  readonly role: string | null
  /** The number of replicas that are connected to the server. */
  readonly replicas: number | null
  /** Whether the server is a node of a Redis Cluster. */
  readonly cluster: boolean | null
  /** The server's memory limit, in bytes; 0 for no limit. */
  readonly maxmemory: number | null
  /** The memory that the server uses, in bytes. */
  readonly usedMemory: number | null
  /** What the server does when it reaches `maxmemory`; a lock needs `noeviction`. */
  readonly maxmemoryPolicy: string | null
  /** Whether the server writes every change to its append-only file. */
  readonly appendonly: boolean | null
  /** When the server syncs that file to disk: `always`, `everysec` or `no`. */
  readonly appendfsync: string | null
  /**
   * The offset of the server's clock from this machine's clock, in milliseconds; positive if the
   * server's clock is ahead.
   */
  readonly clockOffsetMs: number | null
  /** The number of the database that the client uses. */
  readonly database: number
  /** Whether the connection is encrypted. */
  readonly tls: boolean
  /** Whether the user of the connection may run each command that quorlock uses. */
  readonly permissions: Readonly<Record<string, 'allowed' | 'denied'>>
  readonly findings: readonly Finding[]
}

/** A setting that must be the same in all clients of a fleet. */
export interface Setting {
  /** `nodes`, `restart_guard`, `key_prefix` or `drift_factor`. */
  readonly name: string
  /** The value, for people: of `nodes` their number, of a duration such as `30 s`, or `off`. */
  readonly value: string
  /** Where the value is from: the option, the name of an environment variable, or `default`. */
  readonly source: string
}

/** The result of {@link Client.doctor}. `String(diagnosis)` is a readable report. */
export class Diagnosis {
  private constructor()
  /** The worst level of all findings. */
  readonly level: Finding['level']
  /** The settings that must be the same in all clients of a fleet. */
  readonly settings: readonly Setting[]
  /** Findings about the nodes as a whole. */
  readonly findings: readonly Finding[]
  /** The nodes, in the order of the client's list. */
  readonly nodes: readonly NodeDiagnosis[]
  /** Returns a readable report of several lines. */
  toString(): string
}

/** A holder of a resource in shared mode. */
export interface Reader {
  /** The name of the reader: what it calls itself; `null` if it has none. */
  readonly holder: string | null
  /** The first 8 characters of its token, which tell readers apart. The rest is secret. */
  readonly token: string
  /**
   * The time in ms until its lease expires if it is not extended: on this node or, in a {@link Status}, on so many that
   * no majority has it.
   */
  readonly remaining: number
}

/** What one node stores about a resource. */
export interface NodeStatus {
  /** The node's URL, without user and password. */
  readonly address: string
  /**
   * `held`; `missing` if the resource is free on this node. Any other outcome says why the node gave no report, or
   * why it does not count.
   */
  readonly outcome: NodeReport['outcome']
  /** Details, such as the server's error text; may be empty. */
  readonly detail: string
  /** The name of the holder; `null` if it has none, if there are readers, or if another program stored the key. */
  readonly holder: string | null
  /** The holders in shared mode. The resource is `held` by them together. */
  readonly readers: readonly Reader[]
  /**
   * The first 8 characters of the token in the key, which tell holders apart; `null` if there is no key, or its
   * value is not text.
   */
  readonly token: string | null
  /** The time in ms until the key expires; `null` if it never does, or if there is no key. */
  readonly remaining: number | null
  /** The last fencing token that the node granted; `null` if it has been forgotten. */
  readonly fence: number | null
  /** The number of clients in the node's queue; `null` if it could not be read. */
  readonly waiters: number | null
}

/** The status of a resource: the result of {@link Client.status}. */
export interface Status {
  /** The name of the resource. */
  readonly resource: string
  /**
   * `held`: a majority of the nodes holds the same token. `free`: the resource is free on a majority. `contested`:
   * neither, because several clients try to acquire it, or the keys of an attempt that failed have not expired.
   * `unknown`: too few nodes answered to tell.
   */
  readonly state: 'free' | 'held' | 'contested' | 'unknown'
  /**
   * The name of the holder: what it calls itself. `null` if the state is not `held`, if the holder has no name, if there
   * are readers, or if another program holds the resource.
   */
  readonly holder: string | null
  /** The holders in shared mode: those that a majority of the nodes has. */
  readonly readers: readonly Reader[]
  /**
   * The first 8 characters of the holder's token, which tell holders apart; `null` if the state is not `held`. The
   * rest is secret.
   */
  readonly token: string | null
  /**
   * When the holder acquired the resource, by the nodes' clocks. It is derived from the fence, which is the median of
   * the nodes' clocks unless a counter was ahead of them: then the time is too late. `null` if the state is not
   * `held`, if another program holds the resource, or if the time would be in the future.
   */
  readonly since: Date | null
  /** The largest fencing token that was granted: the holder's, if the state is `held`. */
  readonly fence: number | null
  /**
   * The time in ms until a majority of the nodes is free, if no key is extended; `null` if the resource is free, or
   * if the time is unknown.
   */
  readonly remaining: number | null
  /** The number of clients that wait for the resource: the length of the longest queue. */
  readonly waiters: number
  /** The nodes, in the order of the client's list. */
  readonly nodes: readonly NodeStatus[]
}

/** The holder of one permit of a semaphore: a majority of the nodes has its token. */
export interface PermitHolder {
  /** The number of the permit. */
  readonly slot: number
  /** The name of the holder: what it calls itself; `null` if it has none. */
  readonly holder: string | null
  /**
   * The first 8 characters of its token, which tell holders apart. A lease of several permits has one token. The rest is
   * secret.
   */
  readonly token: string
  /** The largest fencing token of the permit; `null` if the nodes have forgotten it. */
  readonly fence: number | null
  /**
   * The time in ms until a majority of the nodes has the permit no more, if it is not extended; `null` if it is unknown.
   */
  readonly remaining: number | null
}

/** What one node reports of a semaphore. */
export interface PermitNode {
  /** The node's URL, without user and password. */
  readonly address: string
  /** `confirmed` if the node answered. Any other outcome says why it gave no report. */
  readonly outcome: NodeReport['outcome']
  /** Details, such as the server's error text; may be empty. */
  readonly detail: string
  /** The number of permits that are held there; `null` if the node did not answer. */
  readonly held: number | null
}

/** The status of a semaphore: the result of {@link Semaphore.status}. */
export interface SemaphoreStatus {
  /** The name of the resource. */
  readonly resource: string
  /** The limit of the semaphore that was asked for. */
  readonly limit: number
  /** The number of permits below the limit that are free on a majority of the nodes. */
  readonly free: number
  /** The number of clients that wait for permits: the length of the longest queue. */
  readonly waiters: number
  /** The holders, in the order of their slots. Those at or above the limit belong to clients with a larger limit. */
  readonly holders: readonly PermitHolder[]
  /** The nodes, in the order of the client's list. */
  readonly nodes: readonly PermitNode[]
}

/** A histogram of durations. */
export interface Histogram {
  /** The number of durations. */
  readonly count: number
  /** The sum of the durations, in seconds. */
  readonly sum: number
  /** The upper bound of each bucket but the last, in seconds. All histograms have the same bounds. */
  readonly bounds: readonly number[]
  /**
   * The number of durations in each bucket. A bucket counts the durations that are longer than the
   * previous bucket's bound and not longer than its own. The last bucket has no upper bound, so
   * there is one more bucket than there are bounds.
   */
  readonly counts: readonly number[]
}

/** The statistics of the requests to one node, and the state of its connection. */
export interface NodeStats {
  /** The node's URL, without user and password. */
  readonly address: string
  /**
   * The state of its connection now: `idle` before the first request, `connecting`, `up`, `down` (the
   * last attempt failed, and it is retried), or `closed` with the client.
   */
  readonly state: 'idle' | 'connecting' | 'up' | 'down' | 'closed'
  /** The number of times that the client reconnected after a connection broke or was given up. */
  readonly reconnects: number
  /**
   * The number of requests by outcome; outcomes that did not occur are left out. An extension of
   * several leases in one request counts once.
   */
  readonly outcomes: Readonly<Partial<Record<NodeReport['outcome'], number>>>
  /** The latency of answers. Requests without an answer are counted in `outcomes` only. */
  readonly answerSeconds: Histogram
}

/**
 * Counters of a client since this process first used it. They are not read atomically, so totals
 * across counters may differ by the operations in progress.
 */
export interface Stats {
  /** Acquires that were started. */
  readonly attempts: number
  /** Acquires that succeeded. */
  readonly wins: number
  /**
   * Acquires that ended with {@link LockTimeoutError}: others held the lock for the whole `wait`.
   */
  readonly timeouts: number
  /** Acquires that ended with {@link QuorumError}. */
  readonly noQuorum: number
  /**
   * Acquires that ended in any other way: cancelled, the client was closed, or its nodes are
   * misconfigured.
   */
  readonly cancelled: number
  /** Rounds of requests that acquires needed: one per acquire if none had to wait. */
  readonly rounds: number
  /** Leases that were valid until they were released. */
  readonly releases: number
  /** Leases that were valid until their client was closed. */
  readonly closed: number
  /**
   * Leases that were garbage-collected while valid. Their keys stay on the nodes until they expire.
   */
  readonly dropped: number
  /** Leases that were detached while valid, for another client to adopt. */
  readonly detached: number
  /** Elections that candidates of this client have won. */
  readonly elections: number
  /** Leases that a successor has adopted: see {@link Lease.handOver}. */
  readonly handedOver: number
  /** Leases that were lost. */
  readonly losses: number
  /** Lost leases that were not renewed for lack of a heartbeat: see `heartbeatTimeout`. */
  readonly noHeartbeat: number
  /** Extensions that a majority confirmed. */
  readonly extensions: number
  /** Extensions that a majority did not confirm. Each may have been followed by another attempt. */
  readonly extensionFailures: number
  /** Leases that are held now. */
  readonly held: number
  /**
   * Acquires in progress that wait for other holders, or will wait if their first round fails: the
   * total length of all local wait queues.
   */
  readonly waiting: number
  /** The durations of successful acquires, including any waiting. */
  readonly acquireSeconds: Histogram
  /** The durations of acquires that had to wait, successful or not. */
  readonly waitSeconds: Histogram
  /** The durations for which leases were held until they were released, dropped or lost. */
  readonly holdSeconds: Histogram
  /** The durations of extensions that a majority confirmed. */
  readonly extensionSeconds: Histogram
  /** The nodes, in the order of the client's list. */
  readonly nodes: readonly NodeStats[]
}

/** A metric, for exporters; see `quorlock/prometheus` and `quorlock/opentelemetry`. */
export interface Metric {
  /** The name by the conventions of Prometheus, but without the suffix `_total` of a counter. */
  readonly name: string
  readonly kind: 'counter' | 'gauge' | 'histogram'
  /** A description of the metric, in one sentence. */
  readonly help: string
  readonly samples: readonly {
    /** The names and values of the sample's labels. */
    readonly labels: readonly (readonly [name: string, value: string])[]
    readonly value: number | Histogram
  }[]
}

/**
 * A record of an event of a node or a lease. It is published on one of the diagnostics channels
 * `quorlock:error`, `:warn`, `:info`, `:debug` and `:trace`. Its further fields depend on the
 * `name`.
 */
export interface LogRecord {
  readonly level: 'error' | 'warn' | 'info' | 'debug' | 'trace'
  /**
   * The source of the event: `quorlock`, `quorlock::node`, `quorlock::lease`, `quorlock::acquire`, `quorlock::waiting` or
   * `quorlock::election`.
   */
  readonly target: string
  /** The kind of event, such as `node.down`. */
  readonly name: string
  /** What happened, including the fields, in one line. */
  readonly message: string
  readonly time: Date
  /** The node's URL, without user and password. */
  readonly node?: string
  /** The locked resource. */
  readonly resource?: string
  readonly fence?: number
  /** The outcome in one word, such as `taken`. */
  readonly outcome?: string
  readonly [field: string]: unknown
}

/**
 * A client of N independent Redis or Valkey masters. It opens no connection and starts no thread before the
 * first operation. An idle client does not keep the process alive.
 */
export class Client implements AsyncDisposable {
  /**
   * `nodes` are URLs: `redis://[user:password@]host[:port][/database]`, `rediss://…` with TLS,
   * `redis-sentinel://host,…/service`, `redis-cluster://host,…`, `unix:///path[?db=…]`, or
   * `memory://name` for a node in this process, for tests. Without `nodes`, the URLs are read from the
   * environment variable `QUORLOCK_NODES`, separated by commas.
   *
   * Throws {@link ConfigError} for an invalid URL, option or node list, and for options that are not a
   * plain object.
   */
  constructor(nodes?: readonly (string | URL)[], options?: ClientOptions)
  /**
   * Creates a client whose nodes are those of clients of ioredis, node-redis or Valkey GLIDE. Each client is one node: a
   * server, a master that sentinels manage, or a cluster.
   *
   * Copies hosts, ports, Unix sockets, TLS, users, passwords, credentials providers and databases, as they are now. Does not
   * use the clients' connections, and does not connect. The option `credentials` replaces the logins of the clients. If a
   * client has a `keyPrefix`, the option `keyPrefix` must be given.
   *
   * Throws {@link ConfigError} for anything that is not such a client, for a client of node-redis whose settings are private
   * (`createSentinel`, pools, `createCluster` of version 4), for a setting that quorlock does not have, such as certificates
   * in memory, and as the constructor.
   *
   * Called on a subclass, calls its constructor with the nodes' URLs and the options.
   */
  static from<Created extends Client>(
    this: new (nodes: string[], options: ClientOptions) => Created,
    clients: ExistingClient | readonly ExistingClient[],
    options?: ClientOptions,
  ): Created
  /** The nodes' URLs, without user and password. */
  readonly nodes: readonly string[]
  /** Whether the client is closed. */
  readonly closed: boolean
  /**
   * Acquires the lock, waiting for up to `wait` while others hold it. Rejects with
   * {@link LockTimeoutError} if they still hold it after `wait`, with {@link QuorumError} if too few nodes
   * can vote and still cannot after `connectTimeout` or `wait`, whichever is shorter, with
   * {@link ClosedError} if the client is closed, and with {@link ConfigError} for no resource, an empty or repeated resource, an invalid option, options
   * that are not a plain object, or duplicate nodes.
   */
  lock(resources: Resources, options?: LockOptions): Promise<Lease>
  /**
   * Tries once to acquire the lock, without waiting. Resolves to `null` if others hold it, or if several clients
   * try at the same time and none of them gets a majority. Otherwise, it works like `lock`. Rejects with
   * {@link ConfigError} if the option `wait` is given.
   */
  tryLock(resources: Resources, options?: Omit<LockOptions, 'wait'>): Promise<Lease | null>
  /**
   * Holds the lock while `work` runs, and resolves to its result. Rejects like `lock` if the acquire fails;
   * with the error of `work` if it throws; with {@link LeaseLostError} if the lease was lost before `work`
   * ended; and with {@link ConfigError} if `work` is not a function, or returns a generator or an RxJS
   * observable, which would run after the lock is released. The error of `work` is never replaced by another one.
   *
   * If the lease was acquired with a resource in shared mode, an acquire of this resource that `work` calls or starts, such
   * as {@link Client.elect}, rejects with {@link ConfigError} if it would wait for this lease, because that wait could not
   * end before `work` does.
   */
  using<T>(resources: Resources, work: (lease: Lease) => T | PromiseLike<T>): Promise<T>
  using<T>(
    resources: Resources,
    options: LockOptions | undefined,
    work: (lease: Lease) => T | PromiseLike<T>,
  ): Promise<T>
  /**
   * Returns the semaphore of a resource: at most `limit` permits of it are held at the same time, by all clients together.
   * Does not acquire any. All clients should use the same limit; while they differ, the largest is in force.
   *
   * The options other than `limit` and `permits` are those of `lock`, by default those of the client; `wait` is the maximum
   * time in ms that an acquire waits while others hold too many permits.
   *
   * Throws {@link ConfigError} for an invalid resource or option.
   */
  semaphore(resource: string, options: SemaphoreOptions): Semaphore
  /**
   * Resolves to whether the lock is held on so many nodes that it could not be acquired now; for several
   * resources, whether any of them is. `mode` is that in which it would be acquired: see {@link LockOptions}. Rejects with
   * {@link QuorumError} if too few nodes answer.
   */
  locked(resources: Resources, options?: Pick<LockOptions, 'mode'>): Promise<boolean>
  /**
   * Adopts a lease that its holder has detached: see {@link Lease.detach}, which resolves to `text`. Resolves to a new
   * lease of the same resources, with a larger fence. At most one adopter wins.
   *
   * The client must have the same nodes, with the same addresses, and the same `keyPrefix`. The options are those of
   * `lock`; `wait` is the time in ms to try again while other adopters hold the lease on some nodes. If the `signal`
   * aborts, others can adopt the lease, unless it was adopted at that moment; it is then released.
   *
   * Rejects with {@link LeaseLostError} if the lease was adopted already, was released, or has expired; the nodes
   * decide, not the clock. Rejects with {@link LockTimeoutError} if others held it on some nodes for the whole `wait`,
   * with {@link QuorumError} if too few nodes can vote, with {@link ConfigError} if the text is damaged, of another
   * version of quorlock, or of other nodes or another `keyPrefix`, or for an invalid option, and with
   * {@link ClosedError} if the client is closed.
   */
  adopt(text: string, options?: Omit<LockOptions, 'mode'>): Promise<Lease>
  /**
   * Campaigns for the leader of a resource, and calls `lead` with the lease whenever elected. The leader is the holder of
   * the lock on the resource; candidates wait for it without a limit, also while too few nodes can vote. Resolves to the
   * result of `lead`, after the lease is released.
   *
   * `signal`, the second argument of `lead`, aborts when the lease is lost or the `signal` of the options aborts. `lead`
   * should end then; the process stays alive until it does. If the lease was lost, and `lead` returns, or rejects
   * because of that, the candidate campaigns again. `lead` may also give up the lease itself: see {@link Lease.handOver}.
   *
   * The options are those of `lock`, except that there is no `wait`, and that `maxHold` is `null` by default: a leader
   * keeps its lease without a limit. `ttl` is the longest time without a leader after one has crashed. `holder` is the
   * name that observers see, and to which a leader hands over. If the `signal` aborts while the candidate waits, the
   * promise rejects with its reason.
   *
   * Rejects with the error of `lead`, with {@link ConfigError} for an invalid resource, option or function, and with
   * {@link ClosedError} if the client is closed.
   */
  elect<T>(resource: string, lead: (lease: Lease, signal: AbortSignal) => T | PromiseLike<T>): Promise<T>
  elect<T>(
    resource: string,
    options: Omit<LockOptions, 'wait' | 'mode'> | undefined,
    lead: (lease: Lease, signal: AbortSignal) => T | PromiseLike<T>,
  ): Promise<T>
  /**
   * Observes the leader of a resource, and takes no part in the election. Yields the present leader, if there is one, and
   * then each new one, by holder name and fence. Never goes back in fence. Of leaders that follow one another quickly,
   * some may be left out, except for the last.
   *
   * It is a hint, for followers that connect to the leader or redirect to it: the leader may be gone by then. What the
   * leader writes is protected by the fence that it sends along.
   *
   * Reads each node about once per second, and when a new leader announces itself. An outage does not end the iteration.
   * If the `signal` aborts, the iteration rejects with its reason. `return()` also ends a call of `next` that waits.
   * Throws {@link ConfigError} for an invalid resource or option; the iteration rejects with {@link ClosedError} if the
   * client is closed.
   */
  watch(resource: string, options?: { signal?: AbortSignal | undefined }): AsyncGenerator<Leader, void, void>
  /**
   * Asks all nodes who holds a resource, since when and for how long, and how many wait for it. Changes nothing on
   * the nodes. The result may be out of date when it arrives. Nodes that do not answer are not an error: see
   * {@link Status.state}. Rejects with {@link ConfigError} for an invalid resource, and with {@link ClosedError} if
   * the client is closed.
   */
  status(resource: string): Promise<Status>
  /**
   * Releases a resource on behalf of its current holder, and notifies the next waiter. Use it for a holder that
   * hangs, or that crashed and had a long ttl.
   *
   * The holder is not notified. If it is alive, it loses the lease at its next renewal, within about a third of its
   * ttl. Until then, it may work at the same time as the next holder.
   *
   * Resolves to the outcome at each node: `confirmed` where the key was deleted, `missing` where there was none. A key
   * whose value is not text is not deleted, and its node reports `held`. Rejects with {@link ConfigError} for an
   * invalid resource, and with {@link ClosedError} if the client is closed.
   */
  forceRelease(resource: string): Promise<readonly NodeReport[]>
  /**
   * Returns the statistics of this client in this process: acquires, leases, and the requests to
   * each node.
   */
  stats(): Stats
  /** Returns the statistics as metrics, for exporters. */
  metrics(): Metric[]
  /**
   * Examines all nodes, and reports which cannot vote and what may break a guarantee of the lock.
   * Changes nothing on the nodes. Takes at most twice `connectTimeout`, or three times if a node is a
   * Redis Cluster. Rejects only with {@link ClosedError}, if the client is closed.
   */
  doctor(): Promise<Diagnosis>
  /**
   * Closes the client: leases that are still held are lost and their keys released, acquires under way
   * reject with {@link ClosedError}, and connections are closed. Waits for the nodes for at most
   * `connectTimeout`. May be called again.
   */
  close(): Promise<void>
  /** Calls {@link Client.close}, at the end of an `await using` block. */
  [Symbol.asyncDispose](): Promise<void>
}
