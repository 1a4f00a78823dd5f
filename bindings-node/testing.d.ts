import type { Client, ClientOptions, Lease, LockOptions } from 'quorlock'

/** The faults of one node, or of all nodes. When a method returns, its fault has taken effect. */
interface Faults {
  /**
   * Accepts connections and requests, but answers none until `thaw`: a process that is stopped, or a machine that
   * hangs. A request fails after its `nodeTimeout`.
   */
  freeze(): void
  /** Ends `freeze`. The requests that have arrived meanwhile are handled in order. */
  thaw(): void
  /**
   * Breaks all connections, and refuses new ones until `mend`: a server or a network that is down. The data is kept.
   */
  cut(): void
  /** Ends `cut`. Clients have connected again on return. */
  mend(): void
  /**
   * Restarts without the data: all keys are lost, and all connections break. The holders notice the loss at
   * their next renewal. With `restartGuard`, clients ignore the votes of a restarted node as soon as they reconnect.
   */
  forget(): void
}

/** One node of {@link Nodes}. */
export interface Node extends Faults {
  /** The URL of the node. */
  readonly url: string
}

/**
 * In-memory nodes for a test. No other test has nodes of the same names. Its faults apply to all nodes, those of
 * `nodes[0]` to one.
 *
 * The clock is that of the process, including its worker threads: moving it affects all in-memory nodes and their
 * clients. It only goes forward, so it can end a lease but never prolong one. Timers of other code, such as
 * `setTimeout`, do not notice it. Moving it rejects with `ConfigError` while an open client of this process has used
 * nodes that are not in-memory.
 */
export class Nodes implements Faults, Iterable<Node>, AsyncDisposable {
  /** Creates 1 to 32 nodes; by default 3. */
  constructor(count?: number)
  readonly [position: number]: Node
  /** The number of nodes. */
  readonly length: number
  /** The URLs of the nodes, for `Client` or for `QUORLOCK_NODES`. */
  readonly urls: string[]
  freeze(): void
  thaw(): void
  cut(): void
  mend(): void
  forget(): void
  /** Returns a new client of these nodes, which `close` closes. */
  client(options?: ClientOptions): Client
  /**
   * Acquires a lock as another process would. The lease is renewed until it is released, or until `close`. Tries once,
   * unless `wait` is given. The lease's `holder` is `another process`. If the tested client has a `keyPrefix`, write
   * the prefix before the resource. Rejects with the same errors as `Client.lock`.
   */
  hold(resources: string | readonly string[], options?: LockOptions): Promise<Lease>
  /**
   * Takes a lock away from its holder, and holds it as `hold` does. The holder's lease is lost when the promise
   * resolves, and its `signal` is aborted.
   */
  steal(resources: string | readonly string[], options?: LockOptions): Promise<Lease>
  /**
   * Moves the clock ahead by milliseconds, almost at once. Everything that quorlock does in that time happens: leases
   * are renewed, waits and requests time out, and leases that cannot be renewed are lost.
   */
  advance(time: number): Promise<void>
  /**
   * Moves the clock ahead by milliseconds in one jump, as if this process, but not the nodes, had been suspended. A
   * lease that ends within the jump is lost, because it was not renewed in time. This includes leases of `hold` and
   * `steal`: give those a ttl that is longer than the jump.
   */
  suspend(time: number): Promise<void>
  /**
   * Calls `work`. Until its promise settles, waiting takes no time: whenever a promise of quorlock is pending, the
   * clock moves to the next moment at which something happens. Resolves to the result of `work`.
   */
  fastForward<T>(work: () => T | PromiseLike<T>): Promise<T>
  /** Ends all faults, and closes the clients of `client`, `hold` and `steal`. */
  close(): Promise<void>
  [Symbol.iterator](): Iterator<Node>
  [Symbol.asyncDispose](): Promise<void>
}
