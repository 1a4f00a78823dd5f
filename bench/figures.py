"""Access to the figures in `results.json`. A figure that was not measured is None."""

from __future__ import annotations

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

    def fastest_peer(self, language: str) -> float | None:
        """Returns the smallest `latency` of these peers."""
        known = [self.latency(name) for name in self.peers(language)]
        return min((figure for figure in known if figure is not None), default=None)

    def busiest_peer(self, language: str, level: int) -> float | None:
        """Returns the largest `rate` of these peers."""
        known = [self.rate(name, level) for name in self.peers(language)]
        return max((figure for figure in known if figure is not None), default=None)

    def kind(self, name: str) -> str:
        kind: str = self.all["contenders"][name]["kind"]
        return kind


def ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one / other
