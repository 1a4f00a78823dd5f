import type { MeterProvider, TracerProvider } from '@opentelemetry/api'
import type { Client } from 'quorlock'

/**
 * Tells OpenTelemetry of a client: a span `quorlock.acquire` for each acquire, within the span in which
 * it is made; how long it took, as the histogram `quorlock.acquire.duration`; and what the client counts.
 *
 * The providers are the global ones unless they are given. To be called once for a client, which it keeps;
 * what it returns ends it.
 */
export function instrument(
  client: Client,
  options?: { meterProvider?: MeterProvider | undefined; tracerProvider?: TracerProvider | undefined },
): () => void
