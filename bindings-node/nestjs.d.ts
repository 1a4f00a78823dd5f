import type { DynamicModule, FactoryProvider, ModuleMetadata } from '@nestjs/common'
import type { ClientOptions, LockOptions } from 'quorlock'

/** Options of the module: those of a client, and its nodes. */
export interface QuorlockModuleOptions extends ClientOptions {
  /** The URLs of the nodes. Default: the URLs in the environment variable `QUORLOCK_NODES`. */
  nodes?: readonly string[] | undefined
}

/** How {@link QuorlockModule.forRootAsync} gets the options: from a function with injected arguments. */
export interface QuorlockModuleAsyncOptions {
  /** Modules that export the providers in `inject`. */
  imports?: ModuleMetadata['imports']
  /** The providers that `useFactory` is called with. */
  inject?: FactoryProvider['inject']
  /** Returns the options, or a promise of them. */
  useFactory: (...given: any[]) => QuorlockModuleOptions | Promise<QuorlockModuleOptions>
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

/**
 * Holds a lock while the handler runs, with an interceptor:
 * ``@Locked((request) => `orders:${request.params.order}`, { wait: 1_000 })``. `resources` is what to lock, or a
 * function of the request that returns it. If the HTTP client disconnects, the wait ends. For HTTP requests only.
 */
export function Locked(
  resources: string | readonly string[] | ((request: any) => string | readonly string[]),
  options?: Omit<LockOptions, 'signal'>,
): MethodDecorator & ClassDecorator

/** A parameter of a handler: the `Lease` of the lock that {@link Locked} holds, `@HeldLease() lease: Lease`. */
export function HeldLease(): ParameterDecorator
