import type { Client } from 'quorlock'

/** The part of prom-client's registry that is used here. */
interface Registry {
  registerMetric(metric: never): void
}

/**
 * Registers the statistics of one client, or of several, with a registry of prom-client.
 * `register(promClient.register, client)` registers one client. `register(promClient.register, { orders, users })`
 * registers several; their names become the label `client`. Throws `ConfigError` if there is no client.
 */
export function register(registry: Registry, clients: Client | Readonly<Record<string, Client>>): void
