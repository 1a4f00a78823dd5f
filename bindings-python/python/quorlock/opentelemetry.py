"""OpenTelemetry metrics and spans of a client: `pip install quorlock[opentelemetry]`.

from quorlock.opentelemetry import instrument

instrument(client)
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from threading import Lock
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry.metrics import (
    CallbackOptions,
    Histogram,
    MeterProvider,
    Observation,
    get_meter,
    get_meter_provider,
)
from opentelemetry.trace import SpanKind, StatusCode, Tracer, TracerProvider, get_tracer

from ._client import Client
from ._errors import QuorlockError
from ._quorlock import Lease, __version__

__all__ = ["instrument"]

Observe = Callable[[tuple[str, ...]], AbstractContextManager[Callable[[Lease], None]]]
Callback = Callable[[CallbackOptions], list[Observation]]

# Weak: the meter must not keep the clients alive.
_instrumented: WeakKeyDictionary[Client, tuple[str, MeterProvider | None]] = WeakKeyDictionary()
"""The instrumented clients, with their names and meter providers. None is the global provider."""

_claiming = Lock()

_numbers = count(1)


def instrument(
    client: Client,
    *,
    name: str | None = None,
    meter_provider: MeterProvider | None = None,
    tracer_provider: TracerProvider | None = None,
) -> None:
    """Instruments a client with OpenTelemetry. Call it once per client; a second call replaces the
    first.

    It exports a span `quorlock.acquire` for each acquire, as a child of the current span; the
    duration of acquires, as the histogram `quorlock.acquire.duration`; and the client's statistics.
    All metrics have the attribute `quorlock.client`, which is `name`, or by default `client-1`,
    `client-2` and so on.

    The default providers are the global ones. Raises ValueError if another open client has the same
    name.
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
        exported = metric.replace("_", ".").removesuffix(".seconds")

        def read(part: str | None = None, metric: str = metric) -> list[Callback]:
            return [_reader(meter_provider, metric, part)]

        match family["kind"]:
            case "counter":
                meter.create_observable_counter(exported, read(), "1", about)
            case "gauge":
                meter.create_observable_gauge(exported, read(), "1", about)
            case _:
                # OpenTelemetry has no observable histograms. The sum and the count give the mean.
                meter.create_observable_counter(f"{exported}.time", read("sum"), "s", about)
                meter.create_observable_counter(f"{exported}.count", read("count"), "1", about)
    # Last, so that a failed call has instrumented nothing.
    name = _claim(client, name, meter_provider)
    client._native.observe(_observer(tracer, durations, name))


def _clients() -> list[tuple[Client, str, MeterProvider | None]]:
    """Returns the instrumented clients. Another thread may add one meanwhile."""
    clients = [client for reference in _instrumented.keyrefs() if (client := reference())]
    return [(client, *_instrumented[client]) for client in clients if client in _instrumented]


def _claim(client: Client, name: str | None, provider: MeterProvider | None) -> str:
    """Registers the client, and returns its name, which no other open client has."""
    with _claiming:
        if name is None:
            known, _ = _instrumented.get(client, (None, None))
            name = known or f"client-{next(_numbers)}"
        for other, taken, _ in _clients():
            if taken == name and other is not client:
                if not other.closed:
                    raise ValueError(f"another client is instrumented with the name {name!r}")
                del _instrumented[other]
        _instrumented[client] = (name, provider)
    return name


def _reader(provider: MeterProvider | None, metric: str, part: str | None) -> Callback:
    """Returns a callback that reads a metric of all clients with this provider.

    A meter keeps only the callback that was registered first, so each one must read all clients.
    """

    def read(_: CallbackOptions) -> list[Observation]:
        return [
            Observation(
                sample["value"][part] if part else sample["value"],
                {"quorlock.client": name} | _attributes(sample),
            )
            for client, name, own in _clients()
            if _resolved(own) is _resolved(provider)
            for family in json.loads(client._native.metrics())
            if family["name"] == metric
            for sample in family["samples"]
        ]

    return read


def _resolved(provider: MeterProvider | None) -> MeterProvider:
    # Looked up at each collection, because the program may set the global provider later.
    return get_meter_provider() if provider is None else provider


def _attributes(sample: dict[str, Any]) -> dict[str, str]:
    return {f"quorlock.{name}": value for name, value in sample["labels"]}


def _observer(tracer: Tracer, durations: Histogram, name: str) -> Observe:
    @contextmanager
    def observe(resources: tuple[str, ...]) -> Iterator[Callable[[Lease], None]]:
        began = perf_counter()
        span = tracer.start_span(
            "quorlock.acquire",
            kind=SpanKind.CLIENT,
            attributes={"quorlock.resources": resources},
        )

        outcome = "cancelled"

        def acquired(lease: Lease) -> None:
            nonlocal outcome
            outcome = "won"
            span.set_attribute("quorlock.fence", max(lease.fences.values()))

        try:
            yield acquired
            if outcome != "won":  # a try that found the lock held by others
                outcome = "timeout"
        except QuorlockError as error:
            outcome = error.code.lower()
            span.set_attribute("error.type", outcome)
            # A timeout is normal contention, so it does not mark the span as failed.
            if error.code != "TIMEOUT":
                span.set_status(StatusCode.ERROR, str(error))
            raise
        finally:
            span.set_attribute("quorlock.outcome", outcome)
            attributes = {"quorlock.client": name, "quorlock.outcome": outcome}
            durations.record(perf_counter() - began, attributes)
            span.end()

    return observe
