// A NestJS module that provides a client and closes it, and a filter that turns lock errors into HTTP statuses.

'use strict'

const common = require('@nestjs/common')
const { APP_FILTER, HttpAdapterHost, ModulesContainer } = require('@nestjs/core')
const { Client, ConfigError, LeaseLostError, LockTimeoutError, QuorumError } = require('./index.js')
const { HeldLease, Locked, giveClient, rawResponse } = require('./nestjs-decorators.js')
const { optionsNamed, optionsOf } = require('./options.js')

/** Answers lock errors: 409 if others hold the lock, else 503. */
class LockErrorFilter {
  #adapterHost
  #log = new common.Logger('Quorlock')

  constructor(adapterHost) {
    this.#adapterHost = adapterHost
  }

  catch(error, host) {
    // NestJS then handles the error as if there were no filter.
    if (host.getType() !== 'http') return
    if (rawResponse(host).closed) return
    const status = error instanceof LockTimeoutError ? 409 : 503
    if (status !== 409) this.#log.warn(error.message) // contention is normal
    const { httpAdapter } = this.#adapterHost
    const response = host.switchToHttp().getResponse()
    httpAdapter.setHeader(response, 'Retry-After', '1')
    httpAdapter.reply(response, { error: error.code }, status)
  }
}
common.Catch(LockTimeoutError, QuorumError, LeaseLostError)(LockErrorFilter)
common.Inject(HttpAdapterHost)(LockErrorFilter, undefined, 0)

class QuorlockModule {
  #client
  #modules

  constructor(client, modules) {
    this.#client = client
    this.#modules = modules
  }

  static forRoot(options) {
    return provide({ useFactory: () => open(options) })
  }

  static forRootAsync(options) {
    const { imports, inject, useFactory } = optionsNamed(['imports', 'inject', 'useFactory'], options)
    if (typeof useFactory !== 'function') throw new ConfigError('forRootAsync needs a function useFactory')
    return provide({ inject, useFactory: async (...given) => open(await useFactory(...given)) }, imports)
  }

  /** Gives the client to objects with locked methods that NestJS has not created: those of `useFactory` and `useValue`. */
  onModuleInit() {
    for (const { providers } of this.#modules.values()) {
      for (const { instance } of providers.values()) giveClient(instance, this.#client)
    }
  }

  /** Called after the requests in progress were answered. */
  onApplicationShutdown() {
    return this.#client.close()
  }
}
common.Module({})(QuorlockModule)
common.Inject(Client)(QuorlockModule, undefined, 0)
common.Inject(ModulesContainer)(QuorlockModule, undefined, 1)

function open(given) {
  const { nodes, ...options } = optionsOf(given)
  return new Client(nodes, options)
}

const provide = (client, imports = []) => ({
  module: QuorlockModule,
  global: true,
  imports,
  providers: [
    { provide: Client, ...client },
    { provide: APP_FILTER, useClass: LockErrorFilter },
  ],
  exports: [Client],
})

module.exports = { HeldLease, Locked, QuorlockModule }
