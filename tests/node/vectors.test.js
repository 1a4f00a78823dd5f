// Runs the vectors that all languages share: see tests/vectors/README.md.

import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { inspect } from 'node:util'
import * as quorlock from 'quorlock'
import { camel, expectOutcome, jsOptions, load } from './rows.js'
import { Servers, until } from './servers.js'

suite('errors', () => {
  for (const row of load('errors')) {
    test(row.code, () => {
      const kind = quorlock[row.class]
      assert(kind.prototype instanceof quorlock.QuorlockError)
      assert.equal(kind.prototype.code, row.code)
      assert.equal(kind.prototype.name, row.class)
    })
  }
})

suite('options', () => {
  for (const [index, row] of load('options').entries()) {
    test(`${row.in} ${row.option} ${JSON.stringify(row.value)}`, async () => {
      const options = jsOptions({ [row.option]: row.value })
      const open = (options) => new quorlock.Client(['memory://options'], options)
      await expectOutcome(row, async () => {
        if (row.in === 'client') return open(options)
        const inLock = row.in === 'lock' ? options : {}
        const lease = await open().lock(`r${index}`, inLock)
        if (row.in === 'extend') await lease.extend(options.ttl)
        await lease.release(row.in === 'release' ? options : undefined)
      })
    })
  }
})

suite('environment', () => {
  for (const row of load('environment')) {
    test(JSON.stringify([row.set, row.options]), async (t) => {
      for (const [variable, value] of Object.entries(row.set)) {
        process.env[variable] = value
        t.after(() => delete process.env[variable])
      }
      const client = await expectOutcome(row, () => new quorlock.Client(row.nodes, jsOptions(row.options)))
      if (!client) return
      const { settings } = await client.doctor()
      await client.close()
      for (const [name, [value, source]] of Object.entries(row.settings)) {
        const setting = settings.find((setting) => setting.name === name)
        assert.deepEqual(setting, { name, value, source: source.replace(`{${name}}`, camel(name)) })
      }
    })
  }
})

suite('nodes', () => {
  for (const row of load('nodes')) {
    test(JSON.stringify(row.nodes), async () => {
      const client = await expectOutcome(row, () => new quorlock.Client(row.nodes))
      for (const secret of row.never ?? []) assert(!inspect(client).includes(secret))
    })
  }
})

suite('resources', () => {
  for (const row of load('resources')) {
    test(JSON.stringify(row.given ?? row.count ?? row.length), async () => {
      const several = row.given ?? Array.from({ length: row.count }, (_, number) => `r${number}`)
      const resources = row.length ? ['x'.repeat(row.length)] : several
      const client = new quorlock.Client(['memory://resources'])
      const lease = await expectOutcome(row, () => client.lock(resources))
      if (!lease) return
      assert.deepEqual(lease.resources, resources)
      assert.deepEqual(new Set(Object.keys(lease.fences)), new Set(resources))
      assert(await client.locked(resources))
      assert(await lease.release())
      assert(!(await client.locked(resources)))
    })
  }
})

/** Checks the modes of the lease, if the step has any. */
const checkModes = ({ modes }, lease) => {
  if (!modes) return
  const [kind, other] = new Set(Object.values(modes))
  assert.deepEqual({ ...lease.modes }, modes)
  assert.equal(lease.mode, other ? null : kind)
}

/** Steps that look at what a server stores. */
const looks = ['command', 'eventually', 'stores']
/** Returns a scenario as it is played on nodes in memory. */
const inMemory = ({ name, steps, ...rest }) => ({
  ...rest,
  name: `${name}, in memory`,
  urls: Array.from({ length: rest.servers }, (_, node) => `memory://${name}-${node}`.replaceAll(' ', '-')),
  steps: steps.filter((step) => !looks.some((look) => look in step)),
})

suite('scenarios', { concurrency: 6 }, () => {
  for (const scenario of load('scenarios').flatMap((row) => (row.memory ? [row, inMemory(row)] : [row]))) {
    test(scenario.name, async (t) => {
      const servers = scenario.urls ? null : await Servers.start(t, scenario.servers, { password: scenario.password ?? null })
      const password = scenario.url_password ? `:${scenario.url_password}@` : ''
      const urls = scenario.urls ?? servers.all.map((server) => `redis://${password}127.0.0.1:${server.port}`)
      const clients = []
      const openClient = ({ nodes = [...urls.keys()], ...by }) => {
        const options = jsOptions({ ...scenario.options, ...by })
        clients.push(new quorlock.Client(nodes.map((node) => urls[node]), options))
        return clients.at(-1)
      }
      const client = openClient({})
      const leases = {}
      const texts = {}
      const play = {
        acquire: async (step) => {
          const options = jsOptions(step.options)
          const lease = await expectOutcome(step, () => client.lock(step.resource, options))
          if (!lease) return
          assert.deepEqual(lease.resources, [step.resource].flat())
          assert.deepEqual(Object.keys(lease.fences), lease.resources)
          assert.equal(lease.holder, step.holder ?? lease.holder)
          checkModes(step, lease)
          leases[step.acquire] = lease
        },
        try_acquire: async (step) => {
          const lease = await expectOutcome(step, () => client.tryLock(step.resource))
          assert.equal(Boolean(lease), step.returns ?? false)
          if (lease) leases[step.try_acquire] = lease
        },
        permits: async ({ count = 1, ...step }) => {
          const options = { limit: step.limit, permits: count, wait: 0 }
          const lease = await expectOutcome(step, async () => client.semaphore(step.resource, options).acquire())
          if (!lease) return
          assert.equal(lease.slots.length, count)
          leases[step.permits] = lease
        },
        slots: (step) => assert.deepEqual(step.slots.flatMap((name) => leases[name].slots).sort(), step.are),
        free: async (step) => {
          const { free } = await client.semaphore(step.free, { limit: step.limit }).status()
          assert.equal(free, step.is)
        },
        release: async (step) => {
          const options = step.keep === undefined ? undefined : { keep: step.keep }
          assert.equal(await leases[step.release].release(options), step.returns)
        },
        downgrade: async (step) => {
          await expectOutcome(step, () => leases[step.downgrade].downgrade())
          checkModes(step, leases[step.downgrade])
        },
        upgrade: async (step) => {
          const lease = await expectOutcome(step, () => leases[step.of].tryUpgrade())
          assert.equal(Boolean(lease), step.returns ?? false)
          if (!lease) return
          checkModes(step, lease)
          leases[step.upgrade] = lease
        },
        extend: (step) => expectOutcome(step, () => leases[step.extend].extend(step.ttl)),
        detach: async (step) => {
          const options = step.within === undefined ? undefined : { within: step.within }
          texts[step.detach] = await expectOutcome(step, () => leases[step.detach].detach(options)) ?? texts[step.detach]
        },
        adopt: async (step) => {
          const whole = texts[step.text]
          const text = step.replace ? whole.replace(...step.replace) : whole
          const adopter = step.by ? openClient(step.by) : client
          const row = { ...step, never: [whole.slice(30, 60)] }
          const lease = await expectOutcome(row, () => adopter.adopt(text, jsOptions(step.options)))
          if (!lease) return
          assert.deepEqual(lease.resources, leases[step.text].resources)
          assert.equal(lease.holder, step.holder ?? lease.holder)
          leases[step.adopt] = lease
        },
        stores: (step) => {
          const { token } = leases[step.lease]
          return until(async () => (await servers.command(step.stores, 'GET', step.resource)) === token)
        },
        locked: async (step) => {
          const locked = await expectOutcome(step, () => client.locked(step.locked))
          assert.equal(locked, step.returns)
        },
        status: async (step) => {
          const status = await client.status(step.status)
          assert.deepEqual([status.state, status.holder], [step.is, step.holder])
        },
        force_release: async (step) => {
          const nodes = await client.forceRelease(step.force_release)
          assert.deepEqual(nodes.map((node) => node.outcome), step.outcomes)
        },
        valid: (step) => {
          assert.equal(leases[step.valid].valid, step.is)
          assert.equal(leases[step.valid].remaining > 0, step.is)
        },
        check: (step) => expectOutcome(step, () => leases[step.check].check()),
        lost: async (step) => {
          const { signal } = leases[step.lost]
          await until(() => signal.aborted)
          const expected = { ...step, error: 'LEASE_LOST' }
          await expectOutcome(expected, () => signal.throwIfAborted())
          await expectOutcome(expected, () => leases[step.lost].check())
        },
        not_lost: (step) => assert(!leases[step.not_lost].signal.aborted),
        hold: async (step) => {
          const end = performance.now() + step.for
          while (performance.now() < end) {
            assert(leases[step.hold].valid)
            await new Promise((resolve) => setTimeout(resolve, 5))
          }
        },
        heartbeat: async (step) => {
          const end = performance.now() + (step.for ?? 0)
          while (performance.now() < end) {
            leases[step.heartbeat].heartbeat()
            await new Promise((resolve) => setTimeout(resolve, 5))
          }
          await expectOutcome(step, () => leases[step.heartbeat].heartbeat())
        },
        increasing: (step) => {
          const last = {}
          for (const { fences } of step.increasing.map((name) => leases[name])) {
            for (const [resource, fence] of Object.entries(fences)) {
              assert(fence > (last[resource] ?? 0))
              last[resource] = fence
            }
          }
        },
        fence: async (step) => {
          const lease = leases[step.fence]
          const fence = await expectOutcome(step, () => lease.fence)
          if (!step.error) assert.deepEqual(Object.values(lease.fences), [fence])
        },
        command: async (step) => {
          assert.deepEqual(await servers.command(...step.command), step.reply)
        },
        eventually: (step) =>
          until(async () => (await servers.command(...step.eventually)) === step.reply),
        close: () => client.close(),
        freeze: (step) => servers.ask(step),
        thaw: (step) => servers.ask(step),
        kill: (step) => servers.ask(step),
        restart: (step) => servers.ask(step),
      }
      for (const step of scenario.steps) {
        const name = Object.keys(play).find((name) => name in step)
        assert(name, `unknown step ${JSON.stringify(step)}`)
        await play[name](step)
      }
      for (const client of clients) await client.close()
    })
  }
})
