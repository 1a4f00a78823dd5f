"""The statistics of a client, and their export to Prometheus and OpenTelemetry."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nodes import queued
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from servers import Servers
from waiting import TIMEOUT, wait_until, wait_until_async

import quorlock
from quorlock.opentelemetry import instrument
from quorlock.prometheus import Collector

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def client(servers: Servers) -> Iterator[quorlock.Client]:
    with quorlock.Client(servers.urls) as client:
        yield client


def lose(client: quorlock.Client) -> None:
    lease = client.lock("lost", ttl=0.05, auto_extend=False).acquire()
    assert lease.wait_lost(60)


def test_outcomes_and_durations_of_acquires_are_counted(
    servers: Servers, client: quorlock.Client
) -> None:
    with client.lock("r") as lease:
        assert client.stats().held == 1
        with pytest.raises(quorlock.LockTimeoutError):
            client.lock("r", wait=0.1).acquire()
        with pytest.raises(quorlock.LockTimeoutError):
            client.lock("r", wait=0).acquire()
        lease.extend()
        waiting = client.lock("r", wait=60)

        async def cancel() -> None:
            task = asyncio.create_task(waiting.acquire_async())
            await wait_until_async(lambda: any(queued(servers)))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancel())
        wait_until(lambda: client.stats().cancelled == 1)
    wait_until(lambda: client.stats().held == 0)
    servers[0].kill()
    servers[1].kill()
    with pytest.raises(quorlock.QuorumError):
        client.lock("r", wait=0).acquire()
    stats = client.stats()
    assert (stats.attempts, stats.wins, stats.timeouts) == (5, 1, 2)
    assert (stats.no_quorum, stats.cancelled, stats.waiting) == (1, 1, 0)
    assert (stats.releases, stats.losses, stats.extensions) == (1, 0, 1)
    assert stats.rounds >= 5
    for histogram, count in [
        (stats.acquire_seconds, 1),
        (stats.hold_seconds, 1),
        (stats.extension_seconds, 1),
    ]:
        assert histogram.count == sum(histogram.counts) == count
        assert len(histogram.counts) == len(histogram.bounds) + 1
        [bucket] = (index for index, count in enumerate(histogram.counts) if count)
        assert histogram.sum <= [*histogram.bounds, float("inf")][bucket]
        assert bucket == 0 or histogram.sum > histogram.bounds[bucket - 1]
    # The acquire with `wait=0.1` is counted: it waited from its first refusal until the end of its
    # `wait`. The cancelled acquire is counted only if a node had refused it before.
    assert 1 <= stats.wait_seconds.count <= 2
    assert stats.wait_seconds.sum > 0
    assert stats.hold_seconds.sum >= 0.1
    third = stats.nodes[2]
    assert third.state == "up"
    answered = {"granted", "held", "confirmed", "missing"}
    assert third.answer_seconds.count == sum(third.outcomes.get(name, 0) for name in answered)


def test_failed_extensions_are_counted(servers: Servers) -> None:
    with quorlock.Client(servers.urls, ttl=2) as client:
        lease = client.lock("r").acquire()
        wait_until(lambda: client.stats().extensions > 0)
        servers[0].freeze()
        servers[1].freeze()
        assert lease.wait_lost(60)
        wait_until(lambda: client.stats().extension_failures > 0)
        assert client.stats().losses == 1


def exported(*collectors: Collector) -> dict[str, Any]:
    """Exports the collectors through a registry. Returns the samples of each metric by name and
    labels."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    parse: Callable[[str], Iterable[Metric]] = text_string_to_metric_families
    families = parse(generate_latest(registry).decode())
    return {
        family.name: {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for sample in family.samples
        }
        for family in families
    }


def test_prometheus_exports_the_statistics(servers: Servers, client: quorlock.Client) -> None:
    with client.lock("r"), pytest.raises(quorlock.LockTimeoutError):
        client.lock("r", wait=0).acquire()
    lose(client)
    metrics = exported(Collector(client))
    acquires = metrics["quorlock_acquires"]
    assert acquires["quorlock_acquires_total", (("outcome", "won"),)] == 2
    assert acquires["quorlock_acquires_total", (("outcome", "timeout"),)] == 1
    assert metrics["quorlock_losses"]["quorlock_losses_total", ()] == 1
    assert metrics["quorlock_leases_held"]["quorlock_leases_held", ()] == 0
    up = metrics["quorlock_node_up"]
    assert up == {("quorlock_node_up", (("node", url),)): 1 for url in servers.urls}
    seconds = metrics["quorlock_acquire_seconds"]
    assert seconds["quorlock_acquire_seconds_bucket", (("le", "+Inf"),)] == 2
    assert seconds["quorlock_acquire_seconds_count", ()] == 2
    assert seconds["quorlock_acquire_seconds_sum", ()] == client.stats().acquire_seconds.sum
    buckets = [value for (name, _), value in seconds.items() if name.endswith("_bucket")]
    assert buckets == sorted(buckets)
    assert len(buckets) == 21
    assert ("quorlock_acquire_seconds_bucket", (("le", "0.00005"),)) in seconds
    assert ("quorlock_acquire_seconds_bucket", (("le", "1"),)) in seconds


def test_a_client_that_is_not_in_use_reports_no_node_as_down(client: quorlock.Client) -> None:
    assert exported(Collector(client)).get("quorlock_node_up", {}) == {}
    client.lock("r").acquire().release()
    assert len(exported(Collector(client))["quorlock_node_up"]) == 3
    client.close()
    assert exported(Collector(client)).get("quorlock_node_up", {}) == {}


def test_prometheus_distinguishes_several_clients_by_label(client: quorlock.Client) -> None:
    with quorlock.Client(["memory://other"]) as other:
        other.lock("r").acquire().release()
        wins = exported(Collector(orders=client, users=other))["quorlock_acquires"]
    name = "quorlock_acquires_total"
    assert wins[name, (("client", "orders"), ("outcome", "won"))] == 0
    assert wins[name, (("client", "users"), ("outcome", "won"))] == 1
    with pytest.raises(TypeError, match="one client, or several clients by name"):
        Collector()
    with pytest.raises(TypeError, match="one client, or several clients by name"):
        Collector(client, other=client)


@pytest.fixture
def spans(client: quorlock.Client) -> Iterator[tuple[InMemorySpanExporter, TracerProvider]]:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield exporter, provider
    provider.shutdown()


def test_opentelemetry_exports_a_span_for_each_acquire(
    client: quorlock.Client, spans: tuple[InMemorySpanExporter, TracerProvider]
) -> None:
    exporter, provider = spans
    instrument(client, tracer_provider=provider, meter_provider=MeterProvider())
    lock = client.lock("r", wait=0)

    async def hold() -> None:
        async with lock:
            pass
        await (await lock.acquire_async()).release_async()

    with provider.get_tracer("test").start_as_current_span("request") as request:
        with lock as lease:
            fence = lease.fence
            with pytest.raises(quorlock.LockTimeoutError):
                lock.acquire()
        lock.acquire().release()
        asyncio.run(hold())
    *acquires, _ = exporter.get_finished_spans()
    assert [span.name for span in acquires] == ["quorlock.acquire"] * 5
    assert {span.kind for span in acquires} == {SpanKind.CLIENT}
    assert {attributes(span)["quorlock.resources"] for span in acquires} == {("r",)}
    parent = request.get_span_context().span_id
    assert all(span.parent and span.parent.span_id == parent for span in acquires)
    first, second, *others = acquires
    assert attributes(first)["quorlock.fence"] == fence
    assert attributes(second)["error.type"] == "timeout"
    assert second.status.status_code == StatusCode.UNSET
    assert all(attributes(span)["quorlock.outcome"] == "won" for span in [first, *others])


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_opentelemetry_spans_show_outages_and_cancelled_acquires(
    servers: Servers,
    client: quorlock.Client,
    spans: tuple[InMemorySpanExporter, TracerProvider],
) -> None:
    exporter, provider = spans
    instrument(client, tracer_provider=provider, meter_provider=MeterProvider())

    async def cancel() -> None:
        async with client.lock("r"):
            task = asyncio.create_task(client.lock("r", wait=60).acquire_async())
            await wait_until_async(lambda: client.stats().waiting == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(cancel())
    servers[0].kill()
    servers[1].kill()
    with pytest.raises(quorlock.QuorumError):
        client.lock("r", wait=0).acquire()
    _, cancelled, failed = exporter.get_finished_spans()
    assert attributes(cancelled)["quorlock.outcome"] == "cancelled"
    assert attributes(failed)["quorlock.outcome"] == "no_quorum"
    assert failed.status.status_code == StatusCode.ERROR


Points = dict[str, dict[tuple[tuple[str, Any], ...], Any]]


def points(reader: InMemoryMetricReader) -> Points:
    """Returns the data points of each metric, by their attributes."""
    data = reader.get_metrics_data()
    assert data is not None
    [scope] = data.resource_metrics[0].scope_metrics
    assert (scope.scope.name, scope.scope.version) == ("quorlock", quorlock.__version__)
    return {
        metric.name: {
            tuple(sorted(dict(point.attributes or {}).items())): point
            for point in metric.data.data_points
        }
        for metric in scope.metrics
    }


def test_opentelemetry_exports_the_statistics(servers: Servers, client: quorlock.Client) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    instrument(client, name="a", meter_provider=provider, tracer_provider=TracerProvider())
    with client.lock("r"), pytest.raises(quorlock.LockTimeoutError):
        client.lock("r", wait=0).acquire()
    metrics = points(reader)
    own = ("quorlock.client", "a")
    won, timeout = (own, ("quorlock.outcome", "won")), (own, ("quorlock.outcome", "timeout"))
    assert metrics["quorlock.acquires"][won].value == 1
    assert metrics["quorlock.acquires"][timeout].value == 1
    assert metrics["quorlock.acquire.duration"][won].count == 1
    assert metrics["quorlock.acquire.count"][(own,)].value == 1
    assert metrics["quorlock.acquire.time"][(own,)].value == client.stats().acquire_seconds.sum
    assert metrics["quorlock.node.up"][(own, ("quorlock.node", servers.urls[0]))].value == 1
    data = reader.get_metrics_data()
    assert data is not None
    units = {each.name: each.unit for each in data.resource_metrics[0].scope_metrics[0].metrics}
    assert units["quorlock.acquire.duration"] == units["quorlock.acquire.time"] == "s"


def wins(reader: InMemoryMetricReader) -> dict[str, int]:
    """Returns the number of acquires that each client won."""
    return {
        dict(attributes)["quorlock.client"]: point.value
        for attributes, point in points(reader)["quorlock.acquires"].items()
        if ("quorlock.outcome", "won") in attributes
    }


def test_a_failed_call_instruments_nothing() -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    meters, clients = MeterProvider(), [quorlock.Client(["memory://failed"]) for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meters.get_meter("quorlock").__class__, "create_histogram", fail)
        with pytest.raises(ZeroDivisionError):
            instrument(clients[0], name="failed", meter_provider=meters)
    instrument(clients[1], name="failed", meter_provider=meters)


def test_opentelemetry_exports_the_statistics_of_every_client() -> None:
    reader, other_reader = InMemoryMetricReader(), InMemoryMetricReader()
    provider, other_provider = MeterProvider([reader]), MeterProvider([other_reader])
    clients = [quorlock.Client(["memory://every"]) for _ in range(4)]
    for number, client in enumerate(clients):
        for _ in range(number + 1):
            client.lock(f"r{number}").acquire().release()
    instrument(clients[0], name="orders", meter_provider=provider)
    instrument(clients[1], name="users", meter_provider=provider)
    instrument(clients[2], meter_provider=provider)
    instrument(clients[3], name="elsewhere", meter_provider=other_provider)
    [unnamed] = wins(reader).keys() - {"orders", "users"}
    assert re.fullmatch(r"client-\d+", unnamed)
    assert wins(reader) == {"orders": 1, "users": 2, unnamed: 3}
    assert wins(other_reader) == {"elsewhere": 4}
    instrument(clients[2], meter_provider=provider)
    assert wins(reader)[unnamed] == 3
    with pytest.raises(ValueError, match="another client is instrumented with the name 'users'"):
        instrument(clients[2], name="users", meter_provider=provider)
    clients[1].close()
    instrument(clients[2], name="users", meter_provider=provider)
    assert wins(reader) == {"orders": 1, "users": 3}
    del client, clients[2]
    assert wins(reader) == {"orders": 1}


GLOBAL_PROVIDER = """
import quorlock
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from quorlock.opentelemetry import instrument
reader = InMemoryMetricReader()
provider = MeterProvider([reader])
clients = [quorlock.Client(["memory://a"]) for _ in range(4)]
instrument(clients[0])
instrument(clients[1])
set_meter_provider(provider)
instrument(clients[2])
instrument(clients[3], meter_provider=provider)
[scope] = reader.get_metrics_data().resource_metrics[0].scope_metrics
[rounds] = [each for each in scope.metrics if each.name == "quorlock.rounds"]
names = [point.attributes["quorlock.client"] for point in rounds.data.data_points]
assert sorted(names) == ["client-1", "client-2", "client-3", "client-4"], names
"""


def test_opentelemetry_exports_clients_instrumented_before_and_after_the_provider_is_set() -> None:
    subprocess.run([sys.executable, "-c", GLOBAL_PROVIDER], check=True, timeout=TIMEOUT)


def test_opentelemetry_shows_a_try_that_found_the_lock_held_as_a_timeout(
    client: quorlock.Client, spans: tuple[InMemorySpanExporter, TracerProvider]
) -> None:
    exporter, provider = spans
    instrument(client, tracer_provider=provider, meter_provider=MeterProvider())
    lock = client.lock("r")
    lease = lock.try_acquire()
    assert lease is not None
    assert lock.try_acquire() is None
    assert asyncio.run(lock.try_acquire_async()) is None
    lease.release()
    won, *held = exporter.get_finished_spans()
    assert (
        attributes(won).items()
        >= {"quorlock.outcome": "won", "quorlock.fence": lease.fence}.items()
    )
    assert [attributes(span)["quorlock.outcome"] for span in held] == ["timeout", "timeout"]
    assert all("quorlock.fence" not in attributes(span) for span in held)


def metrics_in(expressions: str) -> set[str]:
    return set(re.findall(r"\bquorlock_\w+", expressions))


def names(client: quorlock.Client) -> set[str]:
    """Returns the names under which the metrics can be queried."""
    return {name for samples in exported(Collector(client)).values() for name, _ in samples}


def test_the_dashboard_shows_all_metrics_and_no_others(client: quorlock.Client) -> None:
    with client.lock("r"):
        pass
    dashboard = json.loads((ROOT / "docs/grafana/quorlock.json").read_text())
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= dashboard.keys()
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    used_cells: set[tuple[int, int]] = set()
    shown: set[str] = set()
    for panel in panels:
        assert panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        position = panel["gridPos"]
        assert position["x"] + position["w"] <= 24
        cells = {
            (x, y)
            for x in range(position["x"], position["x"] + position["w"])
            for y in range(position["y"], position["y"] + position["h"])
        }
        assert not cells & used_cells
        used_cells |= cells
        assert panel["targets"]
        for target in panel["targets"]:
            assert metrics_in(target["expr"])
            shown |= metrics_in(target["expr"])
    assert shown <= names(client)
    # Every metric family has a panel.
    families = {re.sub("_(total|bucket|sum|count)$", "", name) for name in names(client)}
    assert {re.sub("_(total|bucket|sum|count)$", "", name) for name in shown} == families


def test_the_alerts_use_existing_metrics(client: quorlock.Client) -> None:
    with client.lock("r"):
        pass
    rules = (ROOT / "docs/grafana/alerts.yaml").read_text()
    alerts = re.findall(r"- alert: (\w+)\n\s+expr: (.+)\n", rules)
    assert len(alerts) == rules.count("alert:") >= 4
    for _, expression in alerts:
        assert metrics_in(expression)
        assert metrics_in(expression) <= names(client)


def test_the_documentation_lists_all_metrics(client: quorlock.Client) -> None:
    with client.lock("r"):
        pass
    page = (ROOT / "docs/observability.md").read_text()
    listed = set(re.findall(r"^\| `(quorlock_\w+)`", page, re.MULTILINE))
    assert listed == {re.sub("_(bucket|sum|count)$", "", name) for name in names(client)}
