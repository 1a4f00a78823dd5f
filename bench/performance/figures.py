"""Access to the figures in the results. A figure that was not measured is None."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.goals import ratio

Results = dict[str, Any]


class Figures:
    def __init__(self, results: Results) -> None:
        self.all = results

    def latency(self, name: str) -> float | None:
        """Returns the median time of a cycle, one at a time, in microseconds."""
        return _figure(self.all["one at a time"]["5"], name, "median")

    def rate(self, name: str, level: int) -> float | None:
        """Returns the cycles per second with `level` cycles in flight."""
        return _figure(self.all["in flight"][str(level)], name, "rate")

    def one_node_rate(self, name: str) -> float | None:
        """Returns the cycles per second on one node, with 64 cycles in flight."""
        return _figure(self.all["in flight, one node"], name, "rate")

    def node_cpu(self, name: str, level: int | None = None) -> float | None:
        """Returns the CPU time of one server per cycle, in microseconds: one cycle at a time, or
        with `level` cycles in flight."""
        summaries = self.all["in flight"][str(level)] if level else self.all["one at a time"]["5"]
        return _figure(summaries, name, "server cpu per node")

    def times_before_contention(self, name: str) -> float | None:
        """Returns the CPU time of one server per cycle of a client that has waited for a lock,
        relative to that of a client that has not."""
        kinds = self.all["contention"]
        return ratio(
            *(_figure(kinds[kind], name, "server cpu per node") for kind in ("after", "before"))
        )

    def times_healthy(self, name: str, fault: str) -> float | None:
        """Returns the median time of a cycle under a fault, relative to that without a fault."""
        both = self.all["faults"][fault]
        return ratio(*(_figure(both[kind], name, "median") for kind in ("faulty", "healthy")))

    def fastest_peer(self, form: str) -> float | None:
        """Returns the smallest `latency` of the Python peers in one form, `sync` or `async`."""
        known = [self.latency(name) for name in self._python_peers(form)]
        return min((figure for figure in known if figure is not None), default=None)

    def busiest_peer(self, form: str, level: int) -> float | None:
        """Returns the largest `rate` of the Python peers in one form, `sync` or `async`."""
        known = [self.rate(name, level) for name in self._python_peers(form)]
        return max((figure for figure in known if figure is not None), default=None)

    def _python_peers(self, form: str) -> list[str]:
        """Returns the Python peers that lock on a majority of nodes."""
        wanted = {"kind": "peer", "language": "Python", "form": form}
        return [
            name
            for name in self.all["one at a time"]["5"]
            if self.all["contenders"][name] == wanted
        ]

    def kind(self, name: str) -> str:
        kind: str = self.all["contenders"][name]["kind"]
        return kind


def _figure(summaries: Mapping[str, Mapping[str, float]], name: str, key: str) -> float | None:
    return summaries.get(name, {}).get(key)
