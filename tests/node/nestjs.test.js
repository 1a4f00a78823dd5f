// The NestJS module: the injected client, the decorators, the answers to errors, and the end of the application.

import 'reflect-metadata'
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { test } from 'node:test'
import { Controller, Get, Inject, Module } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { Client } from 'quorlock'
import * as nestjs from 'quorlock/nestjs'
import { Servers } from './servers.js'

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

  undecorated(lease) {
    return { lease }
  }

  lost() {
    return this.client.using('lost', () => this.client.close())
  }
}

// The decorators as TypeScript applies them.
function decorate(name, ...decorators) {
  const descriptor = Object.getOwnPropertyDescriptor(Orders.prototype, name)
  for (const decorator of decorators) decorator(Orders.prototype, name, descriptor)
  if (Orders.prototype[name].length > 0) HeldLease()(Orders.prototype, name, 0)
}
decorate('pay', Get('pay/:order'), Locked((request) => `orders:${request.params.order}`, { wait: 0, ttl: 5_000 }))
decorate('both', Get('both'), Locked(['a', 'b']))
decorate('undecorated', Get('undecorated'))
decorate('lost', Get('lost'))
Inject(Client)(Orders, undefined, 0)
Controller()(Orders)

/** Starts an application with the module. Returns it, its client, and a function that sends a request. */
async function start(t, quorlock) {
  class App {}
  Module({ imports: [quorlock], controllers: [Orders] })(App)
  const app = await NestFactory.create(App, { logger: false, abortOnError: false })
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

test('an outage and a loss are answered with 503, and other errors as before', async (t) => {
  const down = await start(t, QuorlockModule.forRoot({ nodes: ['redis://127.0.0.1:1'], connectTimeout: 100 }))
  assert.deepEqual(await down.get('/pay/42'), [503, '1', { error: 'NO_QUORUM' }])
  const { get } = await start(t, QuorlockModule.forRoot({ nodes: ['memory://nestjs-answers'] }))
  const bug = { statusCode: 500, message: 'Internal server error' }
  assert.deepEqual(await get('/undecorated'), [500, null, bug])
  assert.deepEqual(await get('/lost'), [503, '1', { error: 'LEASE_LOST' }])
})

test('forRootAsync gets the options from a function with injected arguments', async (t) => {
  class Settings {
    nodes = ['memory://nestjs-async']
  }
  class SettingsModule {}
  Module({ providers: [Settings], exports: [Settings] })(SettingsModule)
  const useFactory = async (settings) => ({ nodes: settings.nodes, ttl: 3_000 })
  const { client } = await start(t, QuorlockModule.forRootAsync({ imports: [SettingsModule], inject: [Settings], useFactory }))
  assert.deepEqual(client.nodes, ['memory://nestjs-async'])
  assert.equal((await client.lock('r')).ttl, 3_000)
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
