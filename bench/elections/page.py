"""Generates the section on elections of `docs/performance.md` from the results of one run."""

from __future__ import annotations

from statistics import median
from typing import Any

from markdown import table


def section(results: dict[str, Any]) -> str:
    ttl = f"{results['ttl']:g} s"
    machine = results["machine"]
    rows = [
        _row("hand-over to a successor", results["hand-over"]),
        _row("release", results["release"]),
        _row(f"crash, ttl {ttl}", results["crash"]),
    ]
    return "\n\n".join(
        [
            "## Elections",
            "`make bench-elections` measures how long a change of leader takes: from the end of the"
            " old leader's lease until the new leader has its own. All processes run Python on five"
            " nodes, and one candidate waits. After a crash, the time counts from the moment at"
            f" which the leader is killed. The lease is renewed every third of the ttl, so it ends"
            f" after {results['ttl'] * 2 / 3:g} to {ttl}. For the method, see"
            " [bench/elections](../bench/elections/README.md).",
            table(["change by", "times", "median", "longest"], rows),
            "In a hand-over, the lock is never free: the nodes keep the old leader's key until they"
            " have the new one's. An [observer](election.md#observe-the-leader) learns of the new"
            f" leader {_ms(median(results['observer']))} after the election (median;"
            f" {_ms(max(results['observer']))} at most).",
            f"The figures of this section were measured on {results['date']} at commit"
            f" {machine['commit']}, on a machine with {machine['CPUs']} CPUs"
            f" ({machine['processor']}, {machine['server']}). Placement: {results['placement']}.",
        ]
    )


def _row(name: str, times: list[float]) -> list[str]:
    return [name, str(len(times)), _ms(median(times)), _ms(max(times))]


def _ms(value: float) -> str:
    """Formats milliseconds; as seconds from one second."""
    return f"{value / 1000:.2f} s" if value >= 1000 else f"{value:.2f} ms"
