"""Generates the section on elections of `docs/performance.md` from the results of one run."""

from __future__ import annotations

from statistics import median
from typing import Any

from markdown import placed, table


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
            "`make bench-elections` measures how long a change of leader takes, that is, the time"
            " from the end of the old leader's lease until the new leader has its own lease. In"
            " this benchmark, all processes are Python programs, and each client uses five nodes."
            " Besides the leader, one candidate waits to become the leader. To measure a crash, the"
            " benchmark kills the old leader. In this case, the measurement starts at the kill, not"
            " at the end of the old leader's lease. The"
            f" ttl is {ttl}, and a leader renews its lease when a third of the ttl has passed."
            f" Therefore, the lease of a killed leader ends after {results['ttl'] * 2 / 3:g} to"
            f" {ttl}. For the method, see [bench/elections](../bench/elections/README.md).",
            table(["change by", "times", "median", "longest"], rows),
            "When a leader hands over to its successor, the lock is never free: the nodes keep the"
            " old leader's key until they store the new leader's key. In this"
            " benchmark, an [observer](election.md#observe-the-leader) learned of the new leader at"
            f" most {_ms(max(results['observer']))} after the election (median:"
            f" {_ms(median(results['observer']))}).",
            f"The figures in this section were measured on {results['date']} at commit"
            f" {machine['commit']}, on a machine with {machine['CPUs']} CPUs"
            f" ({machine['processor']}, {machine['server']})."
            f" {placed(results['placement'])}.",
        ]
    )


def _row(name: str, times: list[float]) -> list[str]:
    return [name, str(len(times)), _ms(median(times)), _ms(max(times))]


def _ms(value: float) -> str:
    """Formats milliseconds; as seconds from one second."""
    return f"{value / 1000:.2f} s" if value >= 1000 else f"{value:.2f} ms"
