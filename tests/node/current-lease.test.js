// `currentLease` returns the lease of the innermost function given to `using` or `elect`, or of the method with @Locked.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { NestFactory } from '@nestjs/core'
import { Client } from 'quorlock'
import { currentLease } from 'quorlock/current-lease'
import { Locked, QuorlockModule } from 'quorlock/nestjs'
import { decorate, injectable, moduleOf } from './nest.js'
import { open } from './servers.js'

const holdsNone = () => assert.throws(currentLease, { message: /^no lock is held here/ })

test('the function of using has its lease, also after an await', async (t) => {
  const { client } = await open(t)
  holdsNone()
  await client.using('outer', async (outer) => {
    assert.equal(currentLease(), outer)
    await client.semaphore('inner', { limit: 2 }).using(async (inner) => {
      await sleep(1)
      assert.equal(currentLease(), inner)
    })
    assert.equal(currentLease(), outer)
    await client.using('shared', { mode: 'shared' }, (shared) => assert.equal(currentLease(), shared))
  })
  holdsNone()
  await assert.rejects(client.using('r', () => Promise.reject(new Error('row'))), /row/)
  holdsNone()
})

test('what a function starts has its lease until it ends, then that of the function around it', async (t) => {
  const { client } = await open(t)
  let started, leaveOuter
  const inOuter = new Promise((resolve) => (leaveOuter = resolve))
  await client.using('outer', async (outer) => {
    await client.using('inner', (inner) => {
      started = (async () => {
        assert.equal(currentLease(), inner)
        while (inner.valid) await sleep(1)
        assert.equal(currentLease(), outer)
        leaveOuter()
        while (outer.valid) await sleep(1)
        holdsNone()
      })()
    })
    await Promise.race([inOuter, started])
  })
  await started
})

test('functions that run at the same time have leases of their own', async (t) => {
  const { client } = await open(t)
  const resources = Array.from({ length: 20 }, (_, index) => `r${index}`)
  const held = await Promise.all(
    resources.map((resource) =>
      client.using(resource, async () => {
        await sleep(5)
        return currentLease().resource
      }),
    ),
  )
  assert.deepEqual(held, resources)
})

test('a leader has its lease', async (t) => {
  const { client } = await open(t)
  await client.elect('r', (lease) => assert.equal(currentLease(), lease))
})

test('a method with @Locked has its lease', async (t) => {
  class Jobs {
    async run() {
      await sleep(1)
      return currentLease().resources
    }
  }
  decorate(Jobs.prototype, 'run', [Locked(['a', 'b'])])
  const App = moduleOf({ imports: [QuorlockModule.forRoot({ nodes: ['memory://current-lease'] })], providers: [injectable(Jobs)] })
  const app = await NestFactory.createApplicationContext(App, { logger: false })
  t.after(() => app.close())
  assert.deepEqual(await app.get(Jobs).run(), ['a', 'b'])
})

test('a program that does not import it does not track promises', () => {
  const program = `
    const { Client } = require('quorlock')
    const { AsyncLocalStorage } = require('node:async_hooks')
    let runs = 0
    const run = AsyncLocalStorage.prototype.run
    AsyncLocalStorage.prototype.run = function (...given) { runs++; return run.apply(this, given) }
    const client = new Client(['memory://untracked'])
    const use = () => client.using('r', async () => {})
    use().then(async () => {
      const { currentLease } = require('quorlock/current-lease')
      const before = runs
      await client.using('r', async (lease) => { if (currentLease() !== lease) throw new Error() })
      console.log(before, runs)
    })`
  assert.equal(execFileSync(process.execPath, ['--eval', program], { cwd: import.meta.dirname, encoding: 'utf8' }), '0 1\n')
})
