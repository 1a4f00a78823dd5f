"""Prometheus metrics of a client: `pip install quorlock[prometheus]`.

from prometheus_client import REGISTRY
from quorlock.prometheus import Collector

REGISTRY.register(Collector(client))
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector as BaseCollector

from ._client import Client

__all__ = ["Collector"]


class Collector(BaseCollector):
    """A Prometheus collector for the statistics of one or several clients in this process."""

    def __init__(self, client: Client | None = None, /, **clients: Client) -> None:
        """
        `Collector(client)` is for one client. `Collector(orders=one, users=other)` is for several,
        which are distinguished by the label `client`.

        Raises TypeError if there is no client, or an unnamed one together with named ones.
        """
        if (client is None) == (not clients):
            raise TypeError("a Collector takes one client, or several clients by name")
        named = [({"client": name}, named) for name, named in clients.items()]
        self._clients: list[tuple[dict[str, str], Client]] = (
            named if client is None else [({}, client)]
        )

    def describe(self) -> Iterable[Metric]:
        # The registry only reads the metric names here, and they do not depend on the values.
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        metrics = [
            (labels, json.loads(client._native.metrics())) for labels, client in self._clients
        ]
        # All clients return the same metrics, in the same order.
        for families in zip(*(families for _, families in metrics), strict=True):
            first = families[0]
            metric = Metric(first["name"], first["help"], first["kind"])
            for (labels, _), family in zip(metrics, families, strict=True):
                for sample in family["samples"]:
                    _add(metric, labels | dict(sample["labels"]), sample["value"])
            yield metric


def _add(metric: Metric, labels: dict[str, str], value: Any) -> None:
    match metric.type:
        case "counter":
            metric.add_sample(f"{metric.name}_total", labels, value)
        case "gauge":
            metric.add_sample(metric.name, labels, value)
        case _:
            up_to = 0
            bounds = [*map(_bound, value["bounds"]), "+Inf"]
            for bound, count in zip(bounds, value["counts"], strict=True):
                up_to += count
                metric.add_sample(f"{metric.name}_bucket", labels | {"le": bound}, up_to)
            metric.add_sample(f"{metric.name}_sum", labels, value["sum"])
            metric.add_sample(f"{metric.name}_count", labels, value["count"])


def _bound(seconds: float) -> str:
    # Bounds have the same format in all languages, so that Prometheus can add up the buckets of
    # clients in different languages.
    return f"{seconds:.5f}".rstrip("0").rstrip(".")
