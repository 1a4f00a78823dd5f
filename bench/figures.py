"""Access to the figures in `results.json`. A figure that was not measured is None."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Results = dict[str, Any]

FLOOR = "floor"
"""The contender of raw sockets that sends what quorlock sends, and waits for a majority of the
nodes."""
FLOOR_ALL = "floor, all"
"""The same, but it waits for all nodes."""
FLOOR_PLAIN = "floor, plain"
"""The contender of raw sockets that sends a plain lock, and waits for a majority of the nodes."""
RUST = "quorlock Rust"
PYTHON = "quorlock Python"
ASYNCIO = "quorlock Python (asyncio)"
NODE = "quorlock Node.js"
RUST_ASYNC = "quorlock Rust (async)"
UVLOOP = "quorlock Python (uvloop)"
RSLOCK = "rslock"
REDLOCK_5 = "redlock-5"


class Figures:
    def __init__(self, results: Results) -> None:
        self.all = results

    def latency(self, name: str, nodes: int = 5) -> float | None:
        """Returns the median time of a cycle, one at a time, in microseconds."""
        summary = self.all["one at a time"][str(nodes)].get(name, {})
        figure: float | None = summary.get("median")
        return figure

    def rate(self, name: str, level: int) -> float | None:
        """Returns the cycles per second with `level` cycles in flight."""
        figure: float | None = self.all["in flight"][str(level)].get(name, {}).get("rate")
        return figure

    def node_cpu(self, name: str, level: int | None = None) -> float | None:
        """Returns the CPU time of one server per cycle, in microseconds: one cycle at a time, or
        with `level` cycles in flight."""
        summaries = self.all["in flight"][str(level)] if level else self.all["one at a time"]["5"]
        figure: float | None = summaries.get(name, {}).get("server cpu per node")
        return figure

    def one_node_rate(self, name: str) -> float | None:
        """Returns the cycles per second on one node, with 64 cycles in flight."""
        figure: float | None = self.all["in flight, one node"].get(name, {}).get("rate")
        return figure

    def times_before_contention(self, name: str) -> float | None:
        """Returns the CPU time of one server per cycle of a client that has waited for a lock,
        relative to that of a client that has not."""
        summaries = self.all["contention"]
        after, before = (
            summaries[kind].get(name, {}).get("server cpu per node") for kind in ["after", "before"]
        )
        return ratio(after, before)

    def round_trips(self) -> Mapping[float, dict[str, dict[str, Any]]]:
        """Returns the summaries by the round-trip time in milliseconds, and by contender."""
        measured = self.all.get("round trips", {})
        return {float(milliseconds): summaries for milliseconds, summaries in measured.items()}

    def times_healthy(self, name: str, fault: str) -> float | None:
        """Returns the median time of a cycle under a fault, relative to that without a fault."""
        both = self.all["faults"][fault]
        return ratio(
            both["faulty"].get(name, {}).get("median"), both["healthy"].get(name, {}).get("median")
        )

    def peers(self, language: str) -> list[str]:
        """Returns the peers of the language that lock on a majority of nodes."""
        return [
            name
            for name in self.all["one at a time"]["5"]
            if self.kind(name) == "peer" and self.all["contenders"][name]["language"] == language
        ]

    def fastest_peer(self, language: str, form: str) -> float | None:
        """Returns the smallest `latency` of these peers in one form, `sync` or `async`."""
        known = [
            self.latency(name)
            for name in self.peers(language)
            if self.all["contenders"][name]["form"] == form
        ]
        return min((figure for figure in known if figure is not None), default=None)

    def busiest_peer(self, language: str, form: str, level: int) -> float | None:
        """Returns the largest `rate` of these peers in one form, `sync` or `async`."""
        known = [
            self.rate(name, level)
            for name in self.peers(language)
            if self.all["contenders"][name]["form"] == form
        ]
        return max((figure for figure in known if figure is not None), default=None)

    def kind(self, name: str) -> str:
        kind: str = self.all["contenders"][name]["kind"]
        return kind


def ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one / other
