// A NestJS module that provides a client and closes it, a decorator that holds a lock while a handler runs, and a
// filter that turns lock errors into HTTP statuses.

'use strict'

const common = require('@nestjs/common')
const { APP_FILTER, HttpAdapterHost } = require('@nestjs/core')
const { from, lastValueFrom } = require('rxjs')
const { Client, ConfigError, LeaseLostError, LockTimeoutError, QuorumError } = require('./index.js')
const { optionsNamed, optionsOf } = require('./options.js')

const leases = new WeakMap()

function Locked(resources, options) {
  const resourcesOf = typeof resources === 'function' ? resources : () => resources

  class LockInterceptor {
    #client

    constructor(client) {
      this.#client = client
    }

    intercept(context, next) {
      if (context.getType() !== 'http') throw new ConfigError('@Locked works only in handlers of HTTP requests; call client.using')
      const request = context.switchToHttp().getRequest()
      const held = (lease) => {
        leases.set(request, lease)
        return lastValueFrom(next.handle(), { defaultValue: undefined })
      }
      const signal = whenGone(context)
      return from(this.#client.using(resourcesOf(request), { ...options, signal }, held))
    }
  }
  common.Inject(Client)(LockInterceptor, undefined, 0)
  return common.applyDecorators(common.UseInterceptors(common.mixin(LockInterceptor)))
}

const HeldLease = common.createParamDecorator((_, context) => {
  const lease = leases.get(context.switchToHttp().getRequest())
  if (lease === undefined) throw new ConfigError('@HeldLease() needs @Locked() on the same handler')
  return lease
})

/** Returns a signal that aborts when the HTTP client disconnects, which ends the wait. */
function whenGone(context) {
  const gone = new AbortController()
  const abort = () => gone.abort(new common.HttpException('the client has hung up', 499))
  rawResponse(context).once('close', abort)
  return gone.signal
}

/** Returns the response of Node.js, which the reply of Fastify has as `raw`. */
function rawResponse(host) {
  const response = host.switchToHttp().getResponse()
  return response.raw ?? response
}

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
    if (status !== 409) this.#log.warn(error) // contention is normal
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

  constructor(client) {
    this.#client = client
  }

  static forRoot(options) {
    return provide({ useFactory: () => open(options) })
  }

  static forRootAsync(options) {
    const { imports, inject, useFactory } = optionsNamed(['imports', 'inject', 'useFactory'], options)
    if (typeof useFactory !== 'function') throw new ConfigError('forRootAsync needs a function useFactory')
    return provide({ inject, useFactory: async (...given) => open(await useFactory(...given)) }, imports)
  }

  /** Called after the requests in progress were answered. */
  onApplicationShutdown() {
    return this.#client.close()
  }
}
common.Module({})(QuorlockModule)
common.Inject(Client)(QuorlockModule, undefined, 0)

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
