// A sample program that checks the type declarations. Run by `npm run types`; it is never executed.

import { subscribe } from 'node:diagnostics_channel'
import { Controller, Get, Injectable, Module } from '@nestjs/common'
import { GlideClient, GlideClusterClient } from '@valkey/valkey-glide'
import Fastify from 'fastify'
import { Cluster, Redis } from 'ioredis'
import promClient from 'prom-client'
import { createClient, createCluster } from 'redis'
import { Client, LockTimeoutError, QuorumError, type ClientOptions, type ExistingClient, type Leader, type Lease, type LockOptions, type LogRecord, type Mode, type NodeReport, type Semaphore, type SemaphoreStatus } from 'quorlock'
import { quorlock } from 'quorlock/fastify'
import { HeldLease, Locked, QuorlockModule } from 'quorlock/nestjs'
import { instrument } from 'quorlock/opentelemetry'
import { currentLease } from 'quorlock/current-lease'
import { register } from 'quorlock/prometheus'
import { Nodes, type Node } from 'quorlock/testing'

const client = new Client(['redis://127.0.0.1:6379', new URL('redis://127.0.0.1:6380')], {
  ttl: 5_000,
  wait: null,
  retryDelay: [20, 50],
  restartGuard: 30_000,
  keyPrefix: 'lock:',
})

const existing: ExistingClient[] = [new Redis(), new Cluster([7000]), createClient(), createCluster({ rootNodes: [] })]
export const copied: Client = Client.from(existing, { ttl: 5_000 })
export const copiedFromOne: Client[] = [Client.from(new Redis()), Client.from(createClient()), Client.from([createCluster({ rootNodes: [] })])]
export const copiedFromGlide = (one: GlideClient, other: GlideClusterClient): Client => Client.from([one, other])
class Tenant extends Client {
  readonly tenant = 'a'
  constructor(nodes: string[], options?: ClientOptions) {
    super(nodes, { keyPrefix: 'tenant:', ...options })
  }
}
export const copiedToSubclass: Tenant = Tenant.from(existing)
class Named extends Client {
  constructor(readonly name: string) {
    super()
  }
}
// @ts-expect-error: the constructor would get the nodes and the options
Named.from(existing)
// @ts-expect-error: URLs are for the constructor
Client.from('redis://127.0.0.1:6379')
// @ts-expect-error: URLs are for the constructor
Client.from([new URL('redis://127.0.0.1:6379')])
// @ts-expect-error: there is no such option
Client.from(existing, { tll: 5 })

export async function hold(signal: AbortSignal): Promise<number> {
  await using lease = await client.lock('orders:42', { wait: 2_000, signal })
  await lease.extend(30_000)
  lease.check()
  lease.heartbeat()
  for await (const row of lease.heartbeats([Promise.resolve(1)])) void (row satisfies number)
  return lease.fence
}

export async function once(): Promise<number | null> {
  await using lease = await client.tryLock(['orders:42'], { ttl: 5_000 })
  return lease && lease.ttl + lease.resource.length
}

export const open: boolean = !client.closed && client.nodes.every((url: string) => url !== '')

const app = Fastify()
await app.register(quorlock, { nodes: ['redis://127.0.0.1:6379', new URL('redis://127.0.0.1:6380')], ttl: 5_000, errorHandler: false })
app.get('/', (request) => app.quorlock.using('r', { signal: request.signal }, ({ fence }) => ({ fence })))

@Controller()
class Orders {
  constructor(private readonly locks: Client) {}

  @Get()
  @Locked((request: { id: string }) => `orders:${request.id}`, { wait: 0 })
  pay(@HeldLease() lease: Lease): Promise<boolean> {
    return this.locks.locked(`paid:${lease.resource}`)
  }
}

@Injectable()
class Jobs {
  @Locked(['report', 'archive'], { wait: null })
  async report(@HeldLease() lease?: Lease): Promise<boolean> {
    return lease?.valid ?? false
  }

  // @ts-expect-error: the caller of a method that returns no promise would get one
  @Locked('r')
  size(): number {
    return 1
  }

  // @ts-expect-error: a generator would run after the lock is released
  @Locked('r')
  async *rows(): AsyncGenerator<number> {}

  // @ts-expect-error: a static method has no client
  @Locked('r') static size = 1
}
// @ts-expect-error: @Locked belongs on a method
@Locked('r')
export class Unlocked {}

const useFactory = async (nodes: (string | URL)[]) => ({ nodes, ttl: 5_000 })
@Module({ imports: [QuorlockModule.forRoot(), QuorlockModule.forRootAsync({ inject: ['NODES'], useFactory })], controllers: [Orders], providers: [Jobs] })
export class App {}

export const total: Promise<number> = client.using('r', async (lease: Lease) => lease.remaining)
export const text: Promise<string> = client.using('r', { wait: 0 }, (lease) => lease.token)

export async function optional(options?: LockOptions, candidate?: Pick<LockOptions, 'holder'>, mode?: Mode): Promise<void> {
  await (await client.lock('r', options)).release()
  await client.using('r', options, () => {})
  await client.using('r', { ttl: undefined, mode: { r: mode }, signal: undefined }, () => {})
  await client.elect('r', candidate, () => {})
  await client.semaphore('api', { limit: 1 }).using(undefined, () => {})
}

export const elected: Promise<number> = client.elect('r', { holder: 'pod-1', maxHold: null }, async (lease, signal) => {
  signal.throwIfAborted()
  return (await lease.handOver('pod-2', { within: 5_000 })) ? 0 : lease.fence
})
// @ts-expect-error A candidate waits without a limit.
void client.elect('r', { wait: 0 }, () => {})
export async function follow(signal: AbortSignal): Promise<Leader> {
  for await (const leader of client.watch('r', { signal })) {
    if (leader.holder !== '' && leader.fence > 0) return leader
  }
  throw signal.reason
}
export async function first(leaders: ReturnType<Client['watch']>): Promise<Leader | void> {
  const { value } = await leaders.next()
  await leaders.return()
  // @ts-expect-error: there is no leader at the end
  void value.fence
  return value
}

export async function limited(signal: AbortSignal): Promise<readonly number[]> {
  const semaphore: Semaphore = client.semaphore('api', { limit: 10, permits: 2, wait: null, keep: 0 })
  const lease: Lease | null = await semaphore.tryAcquire()
  const slot: number = await semaphore.using({ permits: 1, signal }, (lease) => lease.slot)
  const { free, holders }: SemaphoreStatus = await semaphore.status()
  return [slot, free, holders[0]?.slot ?? semaphore.limit, ...(lease?.slots ?? (await semaphore.acquire({ wait: 0 })).slots)]
}
// @ts-expect-error A semaphore needs a limit.
void client.semaphore('api', { permits: 2 })
// @ts-expect-error Each permit has one holder.
void client.semaphore('api', { limit: 2, mode: 'shared' })

export function explain(error: unknown): readonly NodeReport[] {
  if (error instanceof LockTimeoutError) return error.code === 'TIMEOUT' ? error.nodes : []
  if (error instanceof QuorumError) return error.nodes
  return []
}

export async function fetchWhileHeld(url: string): Promise<Response> {
  const options = { autoExtend: true, maxHold: null }
  return client.using('r', options, ({ signal }) => fetch(url, { signal }))
}

export async function examine(): Promise<string[]> {
  const diagnosis = await client.doctor()
  if (diagnosis.level === 'ok') return []
  const found = [...diagnosis.findings, ...diagnosis.nodes.flatMap((node) => node.findings)]
  return found.filter(({ level }) => level !== 'ok').map(({ check, advice }) => `${check}: ${advice}`)
}

export const median: number = client.stats().acquireSeconds.bounds[3] ?? 0
export const waiting: number = client.stats().waiting
export const stop: () => void = instrument(client, {})
register(promClient.register, client)
register(promClient.register, { orders: client })

export const currentFence: number = currentLease().fence
subscribe('quorlock:warn', (message) => console.warn((message as LogRecord).message))

export const guarded: number = client.stats().nodes[0]?.outcomes.guarded ?? 0
export const locked: Promise<boolean> = client.locked(['r'])

export async function transfer(accounts: readonly string[]): Promise<Record<string, number>> {
  await using lease = await client.lock(accounts, { wait: 0 })
  const first: string | undefined = lease.resources[0]
  if (first !== undefined && lease.fences[first] === undefined) throw new Error('no fence')
  return client.using(['a', 'b'], async ({ fences }) => ({ ...fences, sum: (fences['a'] ?? 0) + 1 }))
}

export function change(lease: Lease): void {
  // @ts-expect-error: resources are read-only
  lease.resources.push('r')
  // @ts-expect-error: fences are read-only
  lease.fences['r'] = 1
}

export async function keep(lease: Lease): Promise<boolean> {
  await client.using('r', { keep: 60_000 }, () => {})
  return (await lease.release({ keep: 60_000 })) || (await lease.release({ keep: null })) || lease.release()
}

// @ts-expect-error: the promise of a lease is always true
if (client.tryLock('r')) explain(0)
// @ts-expect-error: the promise of a lease is always true
if (client.lock('r')) explain(0)

// @ts-expect-error: a duration is a number
void client.lock('r').then((lease) => lease.release({ keep: '1m' }))
// @ts-expect-error: a resource is a string
void client.lock(['a', 7])
// @ts-expect-error: several resources are an array
void client.lock('a', 'b')
// @ts-expect-error: a duration is a number
new Client([], { ttl: '5s' })
// @ts-expect-error: autoExtend is a boolean
void client.lock('r', { autoExtend: 1 })
// @ts-expect-error: tryLock does not wait
void client.tryLock('r', { wait: 5 })
// @ts-expect-error: the result may be null
void client.tryLock('r').then((lease) => lease.release())
// @ts-expect-error: only the client closes itself
client.closed = true
// @ts-expect-error: a plugin has no such option
app.register(quorlock, { tll: 5 })
// @ts-expect-error: there is no such option
QuorlockModule.forRoot({ tll: 5 })
// @ts-expect-error: there is no such option
void client.lock('r', { tll: 5 })

export async function fail(): Promise<boolean> {
  await using nodes = new Nodes(3)
  const tested = nodes.client({ ttl: 10_000 })
  const other: Lease = await nodes.hold('r', { autoExtend: false })
  const first: Node | undefined = [...nodes][0]
  first?.cut()
  nodes[0]?.mend()
  await nodes.advance(5_000)
  return nodes.fastForward(async () => (await tested.lock('r')).valid && !other.valid)
}
