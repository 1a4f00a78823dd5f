// The decorators of the NestJS module: @Locked holds a lock while a method runs, whoever calls it, and @HeldLease gives
// the lease to a parameter. Nothing here decides who holds the lock: that is `client.using`.

'use strict'

const { AsyncLocalStorage } = require('node:async_hooks')
const common = require('@nestjs/common')
const { Observable } = require('rxjs')
const { Client, ConfigError } = require('./index.js')
const { namesOf, optionsOf } = require('./options.js')

/**
 * The property with the client of an object that has decorated methods. NestJS sets it when it creates the object, in
 * every scope, and refuses to start if there is no client.
 */
const CLIENT = Symbol('client of @Locked')

/** Maps each prototype with decorated methods to the names of its locked methods, and the positions of their leases. */
const decorated = new WeakMap()

/** All methods that `@Locked` has made. */
const lockedMethods = new WeakSet()

/** The HTTP request that is being handled, for the one call of its handler that it covers. */
const requests = new AsyncLocalStorage()

function Locked(resources, options) {
  // A wrong argument is refused when the class is defined.
  if (typeof resources !== 'function') namesOf(resources)
  const checked = optionsOf(options)
  // A plain object, because the client may be a mock.
  const given = options && { ...checked }
  const resourcesOf = typeof resources === 'function' ? resources : () => resources

  return (target, key, descriptor) => {
    const original = methodOf(target, key, descriptor)
    async function locked(...args) {
      const work = (lease) => original.apply(this, withLease(target, key, args, lease))
      const request = requests.getStore()
      if (request?.handler === locked && !request.handled) {
        request.handled = true // A call that the handler makes acquires the lock itself.
        return (request.running = work(request.lease))
      }
      return clientOf(this, key).using(resourcesOf(...args), given, work)
    }
    lockedMethods.add(locked)
    copyProperties(original, locked)
    decorationsOf(target).locked.add(key)
    descriptor.value = locked
    // NestJS calls interceptors only for handlers of its routers, and there before the pipes.
    common.UseInterceptors(interceptorOf(locked, resourcesOf, given))(target, key, descriptor)
    return descriptor
  }
}

/** Returns the class of an interceptor that holds the lock during an HTTP request: the pipes and the handler. */
function interceptorOf(handler, resourcesOf, options) {
  class LockInterceptor {
    #client

    constructor(client) {
      this.#client = client
    }

    intercept(context, next) {
      // Elsewhere, the method acquires the lock.
      if (context.getType() !== 'http') return next.handle()
      const given = context.switchToHttp().getRequest()
      const gone = new AbortController()
      const hangUp = () => gone.abort(new common.HttpException('the client has hung up', 499))
      const response = rawResponse(context)
      // A response of HTTP/2 has the property in its stream.
      if (response.closed ?? response.stream?.closed) hangUp()
      else response.once('close', hangUp)
      return observe((follow) =>
        this.#client.using(resourcesOf(given), { ...options, signal: gone.signal }, async (lease) => {
          const request = { handler, lease, handled: false }
          try {
            return await requests.run(request, () => follow(next.handle(), () => request.running))
          } finally {
            request.handled = true // It covers no later call, even if the handler was not called.
          }
        }),
      )
    }
  }
  common.Inject(Client)(LockInterceptor, undefined, 0)
  return common.mixin(LockInterceptor)
}

/**
 * Returns an observable that calls `work` when it is subscribed to, and ends when its promise does. `work` gets a function
 * that passes on the values of another observable, and settles as that ends, or when nobody listens any more: to the last
 * value, or to the error. Then also the promise that `running` returns has settled, because nothing can stop a handler. An
 * error is passed on at once.
 */
function observe(work) {
  return new Observable((subscriber) => {
    const follow = (source, running) =>
      new Promise((resolve, reject) => {
        let last
        const handled = () => Promise.allSettled([running()])
        const next = (value) => subscriber.next((last = value))
        const complete = () => handled().then(() => resolve(last))
        const error = (reason) => {
          // Before the error is passed on, which calls `complete`.
          handled().then(() => reject(reason))
          // The caller learns of the error now, but the handler may still run, for example after a timeout.
          subscriber.error(reason)
        }
        subscriber.add(complete)
        subscriber.add(source.subscribe({ next, complete, error }))
      })
    // An async function, because `work` may throw.
    const run = async () => work(follow)
    run().then(
      () => subscriber.complete(),
      (error) => subscriber.error(error),
    )
  })
}

// NestJS calls the factory for handlers of its routers. The locked method then sets the parameter.
const parameter = common.createParamDecorator(() => undefined)

const HeldLease = () => (target, key, index) => {
  if (key === undefined) throw new ConfigError(`@HeldLease() belongs on a parameter of a method, not of the constructor of ${target.name}`)
  decorationsOf(target).leases.set(key, index)
  parameter()(target, key, index)
}

/** Returns the arguments, with the lease at the position of `@HeldLease()`. */
function withLease(target, key, args, lease) {
  const index = decorationsOf(target).leases.get(key)
  return index === undefined ? args : Object.assign([...args], { [index]: lease })
}

/** Returns the decorated methods of a prototype. The first time, asks NestJS for the client of its objects. */
function decorationsOf(prototype) {
  const known = decorated.get(prototype)
  if (known) return known
  const decorations = { locked: new Set(), leases: new Map() }
  decorated.set(prototype, decorations)
  // Classes inherit the property, and what NestJS knows about it.
  if (!(CLIENT in prototype)) {
    common.Inject(Client)(prototype, CLIENT)
    Object.defineProperty(prototype, CLIENT, { set: setClient })
  }
  return decorations
}

/** Sets the client of an object. Throws ConfigError if a method has a lease as a parameter, but no lock. */
function setClient(client) {
  for (let prototype = this; prototype; prototype = Object.getPrototypeOf(prototype)) {
    const { locked, leases } = decorated.get(prototype) ?? { leases: new Map() }
    const unlocked = [...leases.keys()].find((key) => !locked.has(key))
    if (unlocked === undefined) continue
    throw new ConfigError(`@HeldLease() needs @Locked() on the same method: ${nameOf(prototype, unlocked)}`)
  }
  Object.defineProperty(this, CLIENT, { value: client, writable: true, configurable: true })
}

/** Sets the client of an object that has decorated methods and no client, because NestJS has not created it. */
function giveClient(object, client) {
  if (typeof object === 'object' && object !== null && CLIENT in object) object[CLIENT] ??= client
}

function clientOf(object, key) {
  const client = object?.[CLIENT]
  if (client !== undefined) return client
  throw new ConfigError(
    `@Locked has no client for ${nameOf(object ?? {}, key)}: the object must be a provider or a controller of a NestJS application with ` +
      'QuorlockModule, and the method must be called on it',
  )
}

/** Returns the method to lock. Throws ConfigError for anything that cannot be locked. */
function methodOf(target, key, descriptor) {
  const refuse = (reason) => {
    throw new ConfigError(`@Locked ${reason}`)
  }
  if (typeof key === 'object') refuse('needs the compiler option experimentalDecorators, as NestJS does')
  if (key === undefined) refuse(`belongs on each method to lock, not on the class ${target.name}`)
  const name = typeof target === 'function' ? `${target.name}.${String(key)}` : nameOf(target, key)
  const method = descriptor?.value
  if (typeof method !== 'function') refuse(`belongs on a method, and ${name} is none`)
  if (typeof target === 'function') refuse(`needs a method of an object, and ${name} is static`)
  if (Object.prototype.toString.call(method).endsWith('GeneratorFunction]')) {
    refuse(`cannot lock ${name}: a generator would run after the lock is released`)
  }
  if (lockedMethods.has(method)) refuse(`is on ${name} twice; for several resources, pass an array`)
  return method
}

/** Copies what other decorators may have set on a function, and its name and length. */
function copyProperties(from, to) {
  Object.defineProperties(to, Object.getOwnPropertyDescriptors(from))
  for (const key of Reflect.getOwnMetadataKeys(from)) {
    Reflect.defineMetadata(key, Reflect.getOwnMetadata(key, from), to)
  }
}

const nameOf = (prototype, key) => `${prototype.constructor?.name}.${String(key)}`

/** Returns the response of Node.js, which the reply of Fastify has as `raw`. */
function rawResponse(host) {
  const response = host.switchToHttp().getResponse()
  return response.raw ?? response
}

module.exports = { HeldLease, Locked, giveClient, rawResponse }
