"""A client's counts and acquires for OpenTelemetry: `pip install quorlock[opentelemetry]`.

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
    """Tells OpenTelemetry of a client: a span `quorlock.acquire` for each acquire, within the span
    in which it is made; how long it took, as the histogram `quorlock.acquire.duration`; and what
    the client counts.

    The providers are the global ones unless they are given. To be called once for a client.
    """
    meter = get_meter("quorlock", __version__, meter_provider)
    tracer = get_tracer("quorlock", __version__, tracer_provider)
    durations = meter.create_histogram(
        "quorlock.acquire.duration",
        "s",
        "How long acquires took, by what became of them.",
        explicit_bucket_boundaries_advisory=client.stats().acquire_seconds.bounds,
    )
    for family in json.loads(client._native.metrics()):
        told, about = family["name"], family["help"]
        name = told.replace("_", ".").removesuffix(".seconds")
        match family["kind"]:
            case "counter":
                meter.create_observable_counter(name, [_reading(client, told)], "1", about)
            case "gauge":
                meter.create_observable_gauge(name, [_reading(client, told)], "1", about)
            case _:
                # There are no observable histograms. Both together give the mean.
                total, count = _reading(client, told, "sum"), _reading(client, told, "count")
                meter.create_observable_counter(f"{name}.time", [total], "s", about)
                meter.create_observable_counter(f"{name}.count", [count], "1", about)
    client._native.observe(_observing(tracer, durations))


def _reading(client: Client, told: str, part: str | None = None) -> Callback:
    weak_client = ref(client)

    def read(_: CallbackOptions) -> list[Observation]:
        if (client := weak_client()) is None:
            return []
        families = json.loads(client._native.metrics())
        [family] = [family for family in families if family["name"] == told]
        return [
            Observation(sample["value"][part] if part else sample["value"], _attributes(sample))
            for sample in family["samples"]
        ]

    return read


def _attributes(sample: dict[str, Any]) -> dict[str, str]:
    return {f"quorlock.{name}": value for name, value in sample["labels"]}


def _observing(tracer: Tracer, durations: Histogram) -> Observe:
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
            # That others have the lock is no failure of anything.
            if error.code != "TIMEOUT":
                span.set_status(StatusCode.ERROR, str(error))
            raise
        finally:
            span.set_attribute("quorlock.outcome", outcome)
            durations.record(perf_counter() - began, {"quorlock.outcome": outcome})
            span.end()

    return observe
