import type { FastifyPluginAsync } from 'fastify'
import type { Client, ClientOptions, LeaseLostError, LockTimeoutError, QuorumError } from 'quorlock'

/** Options of the plugin: those of {@link Client}, its nodes, and whether the plugin answers lock errors. */
export interface QuorlockPluginOptions extends ClientOptions {
  /** The URLs of the nodes. Default: the URLs in the environment variable `QUORLOCK_NODES`. */
  nodes?: readonly (string | URL)[] | undefined
  /**
   * Whether to set an error handler, which answers {@link LockTimeoutError} with 409, and {@link QuorumError} and
   * {@link LeaseLostError} with 503, with the header `Retry-After: 1` and the body `{ "error": code }`. It passes other
   * errors on. Set it to false if the app sets an error handler of its own. Default: true.
   */
  errorHandler?: boolean | undefined
}

/**
 * A Fastify plugin that provides a client as `app.quorlock`, and closes it with the server, after requests in progress
 * were answered: `await app.register(quorlock, { ttl: 5_000 })`. Throws `ConfigError` for an invalid node or option.
 */
export const quorlock: FastifyPluginAsync<QuorlockPluginOptions>

declare module 'fastify' {
  interface FastifyInstance {
    quorlock: Client
  }
}
