// @Locked on methods that NestJS calls without its interceptors, and on those that other providers call: the lock is held
// on the nodes, and a second application is excluded. What cannot be locked is refused.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { getQueueToken, BullModule, Processor, WorkerHost } from '@nestjs/bullmq'
import { Controller, Logger, Scope } from '@nestjs/common'
import { ExternalContextCreator, ModuleRef, NestFactory } from '@nestjs/core'
import { EventEmitter2, EventEmitterModule, OnEvent } from '@nestjs/event-emitter'
import { ClientProxyFactory, MessagePattern, Payload, Transport } from '@nestjs/microservices'
import { Cron, ScheduleModule, SchedulerRegistry } from '@nestjs/schedule'
import { Client } from 'quorlock'
import { HeldLease, Locked, QuorlockModule } from 'quorlock/nestjs'
import { Observable } from 'rxjs'
import { decorate, injectable, leaseAt, moduleOf } from './nest.js'
import { Servers, until } from './servers.js'

Logger.overrideLogger(false)

const NAME = 'orders:42'

/** Work that lasts until it is allowed to end. Counts how many calls run, and how many ever ran at the same time. */
class Work {
  running = 0
  most = 0
  ended = 0
  #end

  constructor() {
    this.mayEnd = new Promise((end) => (this.#end = end))
  }

  async run(lease) {
    assert(lease.valid)
    assert.equal(lease.resource, NAME)
    this.running++
    this.most = Math.max(this.most, this.running)
    await this.mayEnd
    this.running--
    this.ended++
  }

  end() {
    this.#end()
  }
}

const never = { wait: 0 }

/** Returns a class with a method `run`, locked by a resource that its first argument names. */
function lockedClass(work, decorators = [], base = Object) {
  class Jobs extends base {
    run(order, lease) {
      return work.run(lease)
    }
  }
  decorate(Jobs.prototype, 'run', [...decorators, Locked((order) => `orders:${order}`, never)], leaseAt(1))
  return Jobs
}

/**
 * The ways in which NestJS or a program calls a locked method. Each returns the metadata of a module, and a function that
 * calls the method in an application, and does not wait for it.
 */
const CALLS = {
  cron(work) {
    class Jobs {
      report(lease) {
        return work.run(lease)
      }
    }
    // NestJS calls it without arguments, and it is due in a hundred years.
    const due = Cron(new Date(Date.now() + 2e9), { name: 'report' })
    decorate(Jobs.prototype, 'report', [due, Locked(NAME, never)], leaseAt(0))
    const call = (app) => app.get(SchedulerRegistry).getCronJob('report').fireOnTick()
    return { imports: [ScheduleModule.forRoot()], providers: [injectable(Jobs)], call }
  },
  event(work) {
    const Jobs = injectable(lockedClass(work, [OnEvent('paid')]))
    const call = (app) => app.get(EventEmitter2).emit('paid', 42)
    return { imports: [EventEmitterModule.forRoot()], providers: [Jobs], call }
  },
  queue(work, { redis, number }) {
    const connection = { url: redis }
    const name = `orders-${number}`
    class Jobs extends WorkerHost {
      process(job, lease) {
        return work.run(lease)
      }
    }
    decorate(Jobs.prototype, 'process', [Locked((job) => `orders:${job.data.order}`, never)], leaseAt(1))
    Processor(name)(Jobs)
    const call = (app) => app.get(getQueueToken(name)).add('pay', { order: 42 })
    return { imports: [BullModule.forRoot({ connection }), BullModule.registerQueue({ name })], providers: [Jobs], call }
  },
  message(work) {
    class Jobs {
      pay({ order }, lease) {
        return work.run(lease)
      }
    }
    const parameters = [Payload(), HeldLease()]
    decorate(Jobs.prototype, 'pay', [MessagePattern('pay'), Locked(({ order }) => `orders:${order}`, never)], parameters)
    Controller()(Jobs)
    const call = async (app) => {
      const { port } = app.getMicroservices()[0].unwrap().address()
      const sender = ClientProxyFactory.create({ transport: Transport.TCP, options: { host: '127.0.0.1', port } })
      sender.send('pay', { order: 42 }).subscribe({ error: () => {} })
    }
    return { controllers: [Jobs], call, listen: true }
  },
  resolver(work) {
    const Jobs = injectable(lockedClass(work))
    // As @nestjs/graphql calls a resolver.
    const call = (app) => {
      const jobs = app.get(Jobs)
      const factory = { exchangeKeyForValue: () => undefined }
      const options = { guards: true, filters: true, interceptors: true }
      const creator = app.get(ExternalContextCreator, { strict: false })
      const resolve = creator.create(jobs, jobs.run, 'run', 'no parameters', factory, undefined, undefined, options, 'graphql')
      resolve(42).catch(() => {})
    }
    return { providers: [Jobs], call }
  },
  'other provider'(work) {
    const Jobs = injectable(lockedClass(work))
    class Shop {
      constructor(jobs) {
        this.jobs = jobs
      }
    }
    injectable(Shop, [Jobs])
    const call = (app) => void app.get(Shop).jobs.run(42).catch(() => {})
    return { providers: [Jobs, Shop], call }
  },
  'provider of a factory'(work) {
    const Jobs = lockedClass(work)
    const call = (app) => void app.get('JOBS').run(42).catch(() => {})
    return { providers: [{ provide: 'JOBS', useFactory: () => new Jobs() }], call }
  },
  'provider of a value'(work) {
    const Jobs = lockedClass(work)
    const call = (app) => void app.get('JOBS').run(42).catch(() => {})
    return { providers: [{ provide: 'JOBS', useValue: new Jobs() }], call }
  },
  'provider for each request'(work) {
    const Jobs = injectable(lockedClass(work), [], { scope: Scope.REQUEST })
    const call = async (app) => void (await app.resolve(Jobs)).run(42).catch(() => {})
    return { providers: [Jobs], call }
  },
  'provider for each user'(work) {
    const Jobs = injectable(lockedClass(work), [], { scope: Scope.TRANSIENT })
    const call = async (app) => void (await app.resolve(Jobs)).run(42).catch(() => {})
    return { providers: [Jobs], call }
  },
  'object that a provider creates'(work) {
    const Jobs = lockedClass(work)
    const call = async (app) => void (await app.get(ModuleRef).create(Jobs)).run(42).catch(() => {})
    return { call }
  },
  'method of the base class'(work) {
    const Base = lockedClass(work)
    class Jobs extends Base {
      other() {}
    }
    decorate(Jobs.prototype, 'other', [Locked('other')])
    injectable(Jobs)
    const call = (app) => void app.get(Jobs).run(42).catch(() => {})
    return { providers: [Jobs], call }
  },
}

/** Starts an application with a client of the servers. */
async function start(t, nodes, { call, listen, imports = [], ...metadata }) {
  const App = moduleOf({ ...metadata, imports: [QuorlockModule.forRoot({ nodes }), ...imports] })
  const options = { logger: false, abortOnError: false }
  const app = listen ? await NestFactory.create(App, options) : await NestFactory.createApplicationContext(App, options)
  t.after(() => app.close())
  if (listen) {
    app.connectMicroservice({ transport: Transport.TCP, options: { host: '127.0.0.1', port: 0 } })
    await app.startAllMicroservices()
    await app.init()
  }
  return { call: () => call?.(app), client: app.get(Client), app }
}

for (const [kind, describe] of Object.entries(CALLS)) {
  test(`a second application is excluded: ${kind}`, async (t) => {
    // The last server is for the queues.
    const servers = await Servers.start(t, 4)
    const [redis, ...nodes] = servers.urls.toReversed()
    const work = new Work()
    const one = await start(t, nodes, describe(work, { redis, number: 1 }))
    const other = await start(t, nodes, describe(work, { redis, number: 2 }))
    await one.call()
    await until(() => work.running === 1)
    assert(!(await servers.isFree(NAME)))
    await other.call()
    await until(() => other.client.stats().timeouts === 1)
    work.end()
    await until(() => servers.isFree(NAME))
    await other.call()
    await until(() => work.ended === 2)
    assert.equal(work.most, 1)
    await until(() => servers.isFree(NAME))
    // Before the servers end, which a queue would report.
    for (const { app } of [one, other]) await app.close()
  })
}

/** Starts an application with one class, whose nodes are in memory. Returns its instance. */
async function instanceOf(t, kind, metadata = {}) {
  const { app } = await start(t, ['memory://locked'], { providers: [injectable(kind)], ...metadata })
  return app.get(kind)
}

test('the order of decorators that store metadata does not matter', async (t) => {
  class Jobs {
    first() {}
    last() {}
  }
  const due = () => Cron('* * * * * *')
  decorate(Jobs.prototype, 'first', [Locked('r'), due(), OnEvent('e')])
  decorate(Jobs.prototype, 'last', [due(), OnEvent('e'), Locked('r')])
  const metadata = (method) => Reflect.getMetadataKeys(method).map((key) => [key, Reflect.getMetadata(key, method)])
  const found = metadata(Jobs.prototype.first)
  const withoutInterceptor = (entries) => entries.filter(([key]) => key !== '__interceptors__').toSorted()
  assert.equal(withoutInterceptor(found).length, found.length - 1)
  assert(found.length >= 4)
  assert.deepEqual(withoutInterceptor(metadata(Jobs.prototype.last)), withoutInterceptor(found))
  assert.deepEqual([Jobs.prototype.first.name, Jobs.prototype.first.length], ['first', 0])
})

test('a decorator that changes the method runs under the lock only below @Locked', async (t) => {
  const client = new Client(['memory://locked'])
  t.after(() => client.close())
  const held = []
  // Like @Transactional(): it commits when the method has ended.
  const transactional = (target, key, descriptor) => {
    const method = descriptor.value
    descriptor.value = async function (...args) {
      const result = await method.apply(this, args)
      held.push([key, await client.locked('r')])
      return result
    }
  }
  class Jobs {
    async right() {}
    async wrong() {}
  }
  decorate(Jobs.prototype, 'right', [Locked('r'), transactional])
  decorate(Jobs.prototype, 'wrong', [transactional, Locked('r')])
  const jobs = await instanceOf(t, Jobs)
  await jobs.right()
  await jobs.wrong()
  assert.deepEqual(held, [['right', true], ['wrong', false]])
})

test('a decorator that stores the method itself stores the locked one only above @Locked', async (t) => {
  const client = new Client(['memory://locked'])
  t.after(() => client.close())
  const tasks = {}
  const task = (target, key, descriptor) => void (tasks[key] = descriptor.value)
  class Jobs {
    right() {
      return client.locked('r')
    }
    wrong() {
      return client.locked('r')
    }
  }
  decorate(Jobs.prototype, 'right', [task, Locked('r')])
  decorate(Jobs.prototype, 'wrong', [Locked('r'), task])
  const jobs = await instanceOf(t, Jobs)
  assert.equal(await tasks.right.call(jobs), true)
  assert.equal(await tasks.wrong.call(jobs), false)
})

test('a method that overrides a locked one is locked only if it calls it or is decorated', async (t) => {
  const client = new Client(['memory://locked'])
  t.after(() => client.close())
  class Base {
    held() {
      return client.locked('r')
    }
    same() {
      return client.locked('r')
    }
  }
  decorate(Base.prototype, 'held', [Locked('r')])
  decorate(Base.prototype, 'same', [Locked('r')])
  class Jobs extends Base {
    held() {
      return client.locked('r')
    }
    same() {
      return super.same()
    }
  }
  const jobs = await instanceOf(t, Jobs)
  assert.deepEqual([await jobs.held(), await jobs.same()], [false, true])
})

test('the class decides the client: that of its module, or a mock', async (t) => {
  class Jobs {
    async run(lease) {
      return lease
    }
  }
  decorate(Jobs.prototype, 'run', [Locked('r', { ttl: 5_000 })], leaseAt(0))
  injectable(Jobs)
  const given = []
  const mock = { using: (...args) => (given.push(args.slice(0, 2)), args[2]('lease')) }
  const App = moduleOf({ providers: [Jobs, { provide: Client, useValue: mock }] })
  const app = await NestFactory.createApplicationContext(App, { logger: false })
  t.after(() => app.close())
  assert.equal(await app.get(Jobs).run(), 'lease')
  assert.deepEqual(given, [['r', { ttl: 5_000 }]])
})

test('an application without a client does not start, and an object of another origin does not run the method', async (t) => {
  let ran = false
  class Jobs {
    async run() {
      ran = true
    }
  }
  decorate(Jobs.prototype, 'run', [Locked('r')])
  const App = moduleOf({ providers: [injectable(Jobs)] })
  const starting = NestFactory.createApplicationContext(App, { logger: false, abortOnError: false })
  await assert.rejects(starting, /can't resolve dependencies of the Jobs.*client of @Locked/)
  await assert.rejects(new Jobs().run(), { code: 'CONFIG', message: /@Locked has no client for Jobs\.run: .*QuorlockModule/ })
  const { run } = await instanceOf(t, Jobs)
  await assert.rejects(run(), { code: 'CONFIG' })
  assert(!ran)
})

test('@HeldLease() without @Locked is refused when the application starts', async (t) => {
  class Jobs {
    async run(lease) {}
  }
  decorate(Jobs.prototype, 'run', [], leaseAt(0))
  await assert.rejects(instanceOf(t, Jobs), { code: 'CONFIG', message: '@HeldLease() needs @Locked() on the same method: Jobs.run' })
  class Inherited extends Jobs {}
  await assert.rejects(instanceOf(t, Inherited), { code: 'CONFIG', message: /Jobs\.run/ })
  assert.throws(() => HeldLease()(Jobs, undefined, 0), { code: 'CONFIG', message: /not of the constructor of Jobs/ })
})

test('what cannot be locked is refused when the class is defined', () => {
  class Jobs {
    static all() {}
    async run() {}
    *rows() {}
    async *pages() {}
    get size() {
      return 1
    }
  }
  const { prototype } = Jobs
  const refuse = (message, ...given) => assert.throws(() => Locked('r')(...given), { code: 'CONFIG', message })
  const on = (target, key) => [target, key, Object.getOwnPropertyDescriptor(target, key)]
  refuse(/belongs on each method to lock, not on the class Jobs/, Jobs)
  refuse(/Jobs\.all is static/, ...on(Jobs, 'all'))
  refuse(/Jobs\.size is none/, ...on(prototype, 'size'))
  refuse(/Jobs\.field is none/, prototype, 'field')
  refuse(/Jobs\.rows: a generator/, ...on(prototype, 'rows'))
  refuse(/Jobs\.pages: a generator/, ...on(prototype, 'pages'))
  refuse(/experimentalDecorators/, prototype.run, { kind: 'method', name: 'run' })
  decorate(prototype, 'run', [Locked('r')])
  refuse(/on Jobs\.run twice; for several resources, pass an array/, ...on(prototype, 'run'))
  assert.throws(() => Locked(), { code: 'CONFIG' })
  assert.throws(() => Locked(['a', 7]), { code: 'CONFIG', message: /resource/ })
  assert.throws(() => Locked('r', 500), { code: 'CONFIG', message: /\{ ttl: 500 \}/ })
  // `@Locked` without parentheses.
  assert.throws(() => Locked(prototype, 'run', {}), { code: 'CONFIG' })
})

test('a method that returns an observable or a generator is refused, and does not run', async (t) => {
  let ran = false
  class Jobs {
    prices() {
      return new Observable(() => {
        ran = true
      })
    }
    rows() {
      return (function* () {
        ran = true
      })()
    }
  }
  decorate(Jobs.prototype, 'prices', [Locked('r')])
  decorate(Jobs.prototype, 'rows', [Locked('r')])
  const jobs = await instanceOf(t, Jobs)
  await assert.rejects(jobs.prices(), { code: 'CONFIG', message: /returned an observable, which would run after the lock is released; await lastValueFrom/ })
  await assert.rejects(jobs.rows(), { code: 'CONFIG', message: /returned a generator/ })
  assert(!ran)
})

test('hooks of the shutdown can lock, and work under way keeps its lock', async (t) => {
  const servers = await Servers.start(t, 4)
  const [redis, ...nodes] = servers.urls.toReversed()
  const valid = {}
  class Cleaner {}
  for (const hook of ['onModuleInit', 'onModuleDestroy', 'beforeApplicationShutdown', 'onApplicationShutdown']) {
    Cleaner.prototype[hook] = async function (...args) {
      valid[hook] = args.at(-1).valid
    }
    const position = hook.startsWith('on') && !hook.endsWith('Shutdown') ? 0 : 1
    decorate(Cleaner.prototype, hook, [Locked(hook)], leaseAt(position))
  }
  const work = new Work()
  const { imports, providers, call } = CALLS.queue(work, { redis, number: 1 })
  const shop = moduleOf({ imports, providers: [...providers, injectable(Cleaner)] })
  const { app, ...started } = await start(t, nodes, { imports: [shop], call })
  await started.call()
  await until(() => work.running === 1)
  const closing = app.close()
  await until(() => Object.keys(valid).length >= 3)
  assert(!(await servers.isFree(NAME)))
  work.end()
  await closing
  assert.deepEqual(valid, { onModuleInit: true, onModuleDestroy: true, beforeApplicationShutdown: true, onApplicationShutdown: true })
  assert.equal(work.ended, 1)
  for (const name of [NAME, ...Object.keys(valid)]) assert(await servers.isFree(name))
})
