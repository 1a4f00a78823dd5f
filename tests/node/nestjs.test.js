// The NestJS module: the injected client, the decorators, the answers to errors, and the end of the application.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { test } from 'node:test'
import { Controller, Get, Inject, Param, Sse, UseInterceptors } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { Client } from 'quorlock'
import * as nestjs from 'quorlock/nestjs'
import { Observable, of, tap, timeout } from 'rxjs'
import { decorate, leaseAt, moduleOf } from './nest.js'
import { Servers, until } from './servers.js'

const { HeldLease, Locked, QuorlockModule } = nestjs

class Orders {
  constructor(client) {
    this.client = client
  }

  pay(lease) {
    return { resources: lease.resources, ttl: lease.ttl, valid: lease.valid }
  }

  both(lease) {
    return { resources: lease.resources }
  }

  lost() {
    return this.client.using('lost', () => this.client.close())
  }
}

const pay = Locked((request) => `orders:${request.params.order}`, { wait: 0, ttl: 5_000 })
decorate(Orders.prototype, 'pay', [Get('pay/:order'), pay], leaseAt(0))
// In the other order.
decorate(Orders.prototype, 'both', [Locked(['a', 'b']), Get('both')], leaseAt(0))
decorate(Orders.prototype, 'lost', [Get('lost')])
Inject(Client)(Orders, undefined, 0)
Controller()(Orders)

/** Starts an application with the module. Returns it, its client, and a function that sends a request. */
async function start(t, quorlock, controller = Orders, logger = false) {
  const App = moduleOf({ imports: [quorlock], controllers: [controller] })
  const app = await NestFactory.create(App, { logger, abortOnError: false })
  await app.listen(0, '127.0.0.1')
  t.after(() => app.close())
  const get = async (path) => {
    const response = await fetch(`${await app.getUrl()}${path}`)
    return [response.status, response.headers.get('retry-after'), await response.json()]
  }
  return { app, client: app.get(Client), get }
}

test('@Locked holds the lock while the handler runs, and the module closes the client', async (t) => {
  const servers = await Servers.start(t, 3)
  const { app, client, get } = await start(t, QuorlockModule.forRoot({ nodes: servers.urls }))
  assert.deepEqual(await get('/pay/42'), [200, null, { resources: ['orders:42'], ttl: 5_000, valid: true }])
  assert.deepEqual(await get('/both'), [200, null, { resources: ['a', 'b'] }])
  assert(await servers.isEmpty())
  const lease = await client.lock('orders:42')
  assert.deepEqual(await get('/pay/42'), [409, '1', { error: 'TIMEOUT' }])
  assert.deepEqual(await get('/pay/43'), [200, null, { resources: ['orders:43'], ttl: 5_000, valid: true }])
  await app.close()
  assert(client.closed && !lease.valid)
  assert(await servers.isEmpty())
})

test('an outage and a loss are answered with 503', async (t) => {
  const down = await start(t, QuorlockModule.forRoot({ nodes: ['redis://127.0.0.1:1'], connectTimeout: 100 }))
  assert.deepEqual(await down.get('/pay/42'), [503, '1', { error: 'NO_QUORUM' }])
  const { get } = await start(t, QuorlockModule.forRoot({ nodes: ['memory://nestjs-answers'] }))
  assert.deepEqual(await get('/lost'), [503, '1', { error: 'LEASE_LOST' }])
})

test('an outage is logged as one line', async (t) => {
  const lines = []
  const logger = { log() {}, error() {}, warn: (...given) => lines.push(given) }
  const nodes = ['redis://127.0.0.1:1', 'redis://127.0.0.1:2', 'redis://127.0.0.1:3']
  const { get } = await start(t, QuorlockModule.forRoot({ nodes, connectTimeout: 100 }), Orders, logger)
  assert.equal((await get('/pay/42'))[0], 503)
  assert.deepEqual(lines, [[lines[0][0], 'Quorlock']])
  assert.match(lines[0][0], /^too few nodes could vote on "orders:42"[^\n]*3 unreachable[^\n]*$/)
})

test('forRootAsync gets the options from a function with injected arguments', async (t) => {
  class Settings {
    nodes = ['memory://nestjs-async']
  }
  const SettingsModule = moduleOf({ providers: [Settings], exports: [Settings] })
  const useFactory = async (settings) => ({ nodes: settings.nodes, ttl: 3_000 })
  const { client } = await start(t, QuorlockModule.forRootAsync({ imports: [SettingsModule], inject: [Settings], useFactory }))
  assert.deepEqual(client.nodes, ['memory://nestjs-async'])
  assert.equal((await client.lock('r')).ttl, 3_000)
})

test('the lock is held once: for inner interceptors, pipes and the handler, but not for outer interceptors', async (t) => {
  const client = new Client(['memory://nestjs-steps'])
  t.after(() => client.close())
  const steps = []
  const step = async (name) => void steps.push([name, await client.locked('orders:42')])
  const interceptor = (name) => ({
    async intercept(_, next) {
      await step(name)
      return next.handle()
    },
  })
  const pipe = {
    async transform(value) {
      await step('pipe')
      if (value === 'bad') throw new Error('a bad value')
      return value
    },
  }
  class Steps {
    async run() {
      await step('handler')
    }
  }
  const locked = Locked((request) => `orders:${request.params.order}`, { wait: 0 })
  decorate(Steps.prototype, 'run', [Get('run/:order/:value'), UseInterceptors(interceptor('inner')), locked, UseInterceptors(interceptor('outer'))], [Param('value', pipe)])
  Controller()(Steps)
  const { app } = await start(t, QuorlockModule.forRoot({ nodes: ['memory://nestjs-steps'] }), Steps)
  const run = async (value) => (await fetch(`${await app.getUrl()}/run/42/${value}`)).status
  assert.equal(await run('good'), 200)
  const order = [['outer', false], ['inner', true], ['pipe', true], ['handler', true]]
  assert.deepEqual(steps.splice(0), order)
  assert.equal(await run('bad'), 500)
  assert.deepEqual(steps.splice(0), order.slice(0, 3))
  assert.equal(await client.locked('orders:42'), false)
  assert.equal(await run('good'), 200)
})

test('a locked handler that calls a locked method acquires the lock of that call, too', async (t) => {
  class Nested {
    async both(name, lease) {
      if (name === 'other') return [lease.resource]
      return [lease.resource, ...(await this.both('other'))]
    }
  }
  // The request of a handler, or the argument of another call.
  const locked = Locked((given) => given.params?.name ?? given, { wait: 0 })
  decorate(Nested.prototype, 'both', [Get('both/:name'), locked], [Param('name'), HeldLease()])
  Controller()(Nested)
  const { client, get } = await start(t, QuorlockModule.forRoot({ nodes: ['memory://nestjs-nested'] }), Nested)
  assert.deepEqual(await get('/both/first'), [200, null, ['first', 'other']])
  assert.equal(client.stats().wins, 2)
  const lease = await client.lock('other')
  assert.deepEqual(await get('/both/first'), [409, '1', { error: 'TIMEOUT' }])
  assert(lease.valid)
})

test('a handler that streams events holds the lock until the stream ends or its client disconnects', async (t) => {
  class Prices {
    watch() {
      return new Observable((subscriber) => void subscriber.next({ data: 'first' }))
    }
    two() {
      return new Observable((subscriber) => {
        for (const data of ['first', 'last']) subscriber.next({ data })
        subscriber.complete()
      })
    }
  }
  for (const key of ['watch', 'two']) decorate(Prices.prototype, key, [Sse(key), Locked('prices')])
  Controller()(Prices)
  const { app, client } = await start(t, QuorlockModule.forRoot({ nodes: ['memory://nestjs-events'] }), Prices)
  const url = await app.getUrl()
  const response = await fetch(`${url}/watch`)
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  for (let text = ''; !text.includes('data: first'); text += (await reader.read()).value);
  assert(await client.locked('prices'))
  await reader.cancel()
  await until(async () => !(await client.locked('prices')))
  const text = await (await fetch(`${url}/two`)).text()
  assert.deepEqual(text.match(/data: \w+/g), ['data: first', 'data: last'])
  assert.equal(await client.locked('prices'), false)
})

test('a handler that an interceptor gives up on keeps the lock until it ends', async (t) => {
  let end
  class Slow {
    pay() {
      return new Promise((resolve) => (end = resolve))
    }
  }
  class GiveUp {
    intercept(context, next) {
      return next.handle().pipe(timeout({ first: 50, with: () => of('gave up') }))
    }
  }
  decorate(Slow.prototype, 'pay', [Get('pay'), Locked('slow')])
  UseInterceptors(GiveUp)(Slow)
  Controller()(Slow)
  const { app, client } = await start(t, QuorlockModule.forRoot({ nodes: ['memory://nestjs-slow'] }), Slow)
  assert.equal(await (await fetch(`${await app.getUrl()}/pay`)).text(), 'gave up')
  assert(await client.locked('slow'))
  end('paid')
  await until(async () => !(await client.locked('slow')))
})

test('a handler whose interceptor fails keeps the lock until it ends', async (t) => {
  let end, fail
  class Slow {
    pay() {
      return new Promise((resolve) => (end = resolve))
    }
  }
  const failed = new Promise((resolve) => (fail = resolve))
  const failing = { intercept: (_, next) => next.handle().pipe(timeout(50), tap({ error: fail })) }
  decorate(Slow.prototype, 'pay', [Get('pay'), UseInterceptors(failing), Locked('failing')])
  Controller()(Slow)
  const { client, get } = await start(t, QuorlockModule.forRoot({ nodes: ['memory://nestjs-failing'] }), Slow)
  const answer = get('/pay')
  await failed
  assert.equal((await answer)[0], 500, 'the answer does not wait for the handler')
  assert.equal(client.stats().held, 1)
  end('paid')
  while (await client.locked('failing')) await new Promise(setImmediate)
})

test('invalid options are refused', async (t) => {
  const config = { code: 'CONFIG' }
  await assert.rejects(start(t, QuorlockModule.forRoot({ nodes: ['http://a'] })), config)
  await assert.rejects(start(t, QuorlockModule.forRoot(['memory://a'])), { ...config, message: /plain object/ })
  await assert.rejects(start(t, QuorlockModule.forRootAsync({ useFactory: () => ({ ttk: 5 }) })), config)
  assert.throws(() => QuorlockModule.forRootAsync({}), { ...config, message: /useFactory/ })
  assert.throws(() => QuorlockModule.forRootAsync({ useClass: Client }), { ...config, message: /useClass is not an option here/ })
})

test('require and import get the same classes', () => {
  assert.deepEqual({ ...nestjs, default: undefined }, { ...createRequire(import.meta.url)('quorlock/nestjs'), default: undefined })
})
