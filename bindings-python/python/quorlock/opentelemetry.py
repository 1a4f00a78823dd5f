"""OpenTelemetry metrics and spans of a client: `pip install quorlock[opentelemetry]`.

from quorlock.opentelemetry import instrument

instrument(client)
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter
from typing import Any
from weakref import ref

from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider, Observation, get_meter
from opentelemetry.trace import SpanKind, StatusCode, Tracer, TracerProvider, get_tracer

from ._client import Client
from ._errors import QuorlockError
from ._quorlock import Lease, __version__

__all__ = ["instrument"]

Observe = Callable[[tuple[str, ...]], AbstractContextManager[Callable[[Lease], None]]]
Callback = Callable[[CallbackOptions], list[Observation]]


def instrument(
    client: Client,
    *,
    meter_provider: MeterProvider | None = None,
    tracer_provider: TracerProvider | None = None,
) -> None:
    """Instruments a client with OpenTelemetry. Call it once per client.

    It exports a span `quorlock.acquire` for each acquire, as a child of the current span; the
    duration of acquires, as the histogram `quorlock.acquire.duration`; and the client's statistics.

    The default providers are the global ones.
    """
    meter = get_meter("quorlock", __version__, meter_provider)
    tracer = get_tracer("quorlock", __version__, tracer_provider)
    durations = meter.create_histogram(
        "quorlock.acquire.duration",
        "s",
        "Duration of acquires, by outcome.",
        explicit_bucket_boundaries_advisory=client.stats().acquire_seconds.bounds,
    )
    for family in json.loads(client._native.metrics()):
        metric, about = family["name"], family["help"]
        name = metric.replace("_", ".").removesuffix(".seconds")
        match family["kind"]:
            case "counter":
                meter.create_observable_counter(name, [_reader(client, metric)], "1", about)
            case "gauge":
                meter.create_observable_gauge(name, [_reader(client, metric)], "1", about)
            case _:
                # OpenTelemetry has no observable histograms. The sum and the count give the mean.
                total, count = _reader(client, metric, "sum"), _reader(client, metric, "count")
                meter.create_observable_counter(f"{name}.time", [total], "s", about)
                meter.create_observable_counter(f"{name}.count", [count], "1", about)
    client._native.observe(_observer(tracer, durations))


def _reader(client: Client, metric: str, part: str | None = None) -> Callback:
    # Weak: the meter must not keep the client alive.
    weak_client = ref(client)

    def read(_: CallbackOptions) -> list[Observation]:
        if (client := weak_client()) is None:
            return []
        families = json.loads(client._native.metrics())
        [family] = [family for family in families if family["name"] == metric]
        return [
            Observation(sample["value"][part] if part else sample["value"], _attributes(sample))
            for sample in family["samples"]
        ]

    return read


def _attributes(sample: dict[str, Any]) -> dict[str, str]:
    return {f"quorlock.{name}": value for name, value in sample["labels"]}


def _observer(tracer: Tracer, durations: Histogram) -> Observe:
    @contextmanager
    def observe(resources: tuple[str, ...]) -> Iterator[Callable[[Lease], None]]:
        began = perf_counter()
        span = tracer.start_span(
            "quorlock.acquire",
            kind=SpanKind.CLIENT,
            attributes={"quorlock.resources": resources},
        )

        def acquired(lease: Lease) -> None:
            span.set_attribute("quorlock.fence", max(lease.fences.values()))

        outcome = "cancelled"
        try:
            yield acquired
            outcome = "won"
        except QuorlockError as error:
            outcome = error.code.lower()
            span.set_attribute("error.type", outcome)
            # A timeout is normal contention, so it does not mark the span as failed.
            if error.code != "TIMEOUT":
                span.set_status(StatusCode.ERROR, str(error))
            raise
        finally:
            span.set_attribute("quorlock.outcome", outcome)
            durations.record(perf_counter() - began, {"quorlock.outcome": outcome})
            span.end()

    return observe
