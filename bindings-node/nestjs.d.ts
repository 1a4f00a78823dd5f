// Imports no types of NestJS: CommonJS modules cannot import those of an ES module, as NestJS is from version 12 on, in all
// versions of TypeScript.
import type { ClientOptions, LockOptions } from 'quorlock'

/** Options of the module: those of a client, and its nodes. */
export interface QuorlockModuleOptions extends ClientOptions {
  /** The URLs of the nodes. Default: the URLs in the environment variable `QUORLOCK_NODES`. */
  nodes?: readonly (string | URL)[] | undefined
}

/** How {@link QuorlockModule.forRootAsync} gets the options: from a function with injected arguments. */
export interface QuorlockModuleAsyncOptions {
  /** Modules that export the providers in `inject`. */
  imports?: any[] | undefined
  /** The providers that `useFactory` is called with. */
  inject?: any[] | undefined
  /** Returns the options, or a promise of them. */
  useFactory: (...given: any[]) => QuorlockModuleOptions | Promise<QuorlockModuleOptions>
}

/** A dynamic module of NestJS: an element of `imports`. */
interface DynamicModule {
  module: new (...given: any[]) => any
  global?: boolean
  imports?: any[]
  providers?: any[]
  exports?: any[]
}

/**
 * A global module that provides one `Client` of quorlock for the application:
 * `constructor(private readonly locks: Client)`. When the application shuts down, the module closes the client after
 * the requests in progress have been answered. Call `app.enableShutdownHooks()` so that SIGTERM also closes it.
 *
 * If an HTTP request fails with `LockTimeoutError`, the response has status 409. For `QuorumError` and
 * `LeaseLostError`, the status is 503. The response has the header `Retry-After: 1` and the body `{ "error": code }`.
 */
export class QuorlockModule {
  private constructor()
  /** Creates the client from options. Starting the application fails with `ConfigError` if they are invalid. */
  static forRoot(options?: QuorlockModuleOptions): DynamicModule
  /** Creates the client from options that a function returns, for example from a `ConfigService`. */
  static forRootAsync(options: QuorlockModuleAsyncOptions): DynamicModule
}

/** A decorator of methods that return a promise. */
type PromiseMethodDecorator = <Method extends (...given: any[]) => PromiseLike<any>>(
  target: object,
  key: string | symbol,
  descriptor: TypedPropertyDescriptor<Method>,
) => void

/**
 * Holds a lock while the method runs, whoever calls it: a handler of requests or messages, a scheduled job, a queue processor,
 * or a method that another provider calls. The method must return a promise, and belong to an object of a NestJS application
 * that provides a `Client`, otherwise the application does not start.
 *
 * `resources` is what to lock, or a function that returns it. The function gets the request in a handler of HTTP requests, and
 * the arguments of the method in all other calls: ``@Locked((job) => `orders:${job.data.order}`, { wait: 0 })``. The promise
 * rejects like `Client.using`.
 *
 * In a handler of HTTP requests, the lock is held from before the pipes until the response is complete, and the wait ends if
 * the HTTP client disconnects.
 *
 * Throws `ConfigError` for a class, a static method, a generator, and a second `@Locked` on the same method.
 */
export function Locked(
  resources: string | readonly string[] | ((...given: any[]) => string | readonly string[]),
  options?: Omit<LockOptions, 'signal'>,
): PromiseMethodDecorator

/**
 * A parameter of a method: the `Lease` of the lock that {@link Locked} holds, `@HeldLease() lease: Lease`. Callers leave it
 * out. Without `@Locked` on the same method, the application does not start.
 */
export function HeldLease(): ParameterDecorator
