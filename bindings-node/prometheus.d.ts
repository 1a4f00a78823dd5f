import type { Client } from 'quorlock'

/** A registry of prom-client, as far as it is needed. */
interface Registry {
  registerMetric(metric: never): void
}

/**
 * Registers what a client has counted in this process, or several, with a registry of prom-client:
 * `register(promClient.register, client)` is of one client, and `register(promClient.register, { orders, users })`
 * of several, which the label `client` tells apart.
 */
export function register(registry: Registry, clients: Client | Readonly<Record<string, Client>>): void
