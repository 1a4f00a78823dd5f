import type { MeterProvider, TracerProvider } from '@opentelemetry/api'
import type { Client } from 'quorlock'

/**
 * Exports a client's telemetry to OpenTelemetry: a span `quorlock.acquire` for each acquire, as a child of the
 * active span; the duration of each acquire in seconds, as the histogram
 * `quorlock.acquire.duration`; and the client's statistics. All metrics have the attribute `quorlock.client`, which
 * is `name`, or by default `client-1`, `client-2` and so on.
 *
 * The default providers are the global ones. Call it once per client: it keeps a reference to the client. It
 * returns a function that stops the export. Throws `ConfigError` for an unknown option, if `client` is not a
 * client, or if another client is exported with the same name.
 */
export function instrument(
  client: Client,
  options?: {
    name?: string | undefined
    meterProvider?: MeterProvider | undefined
    tracerProvider?: TracerProvider | undefined
  },
): () => void
