"""Formats the results of the topic for `docs/performance.md`."""

from __future__ import annotations

from typing import Any

from bench.markdown import (
    Cell,
    Row,
    failure,
    goal_table,
    in_micros,
    measured,
    megabytes,
    name,
    named,
    table_of,
)
from bench.names import RUST, SERVE
from bench.serve.goals import IN_FLIGHT, goals


def values(results: dict[str, Any]) -> dict[str, str]:
    idle = results["idle"]
    per_connection = (idle["with"] - idle["before"]) / idle["connections"] / 1000
    return {
        "goals": goal_table(goals(results)),
        "cycles": _cycles(results["cycles"]),
        "name": SERVE,
        "in_flight": str(IN_FLIGHT),
        "memory_before": megabytes(idle["before"]),
        "memory_with": megabytes(idle["with"]),
        "connections": f"{idle['connections']:,}",
        "per_connection": f"{per_connection:.1f} kB",
        "measured": measured(results).replace("the clients", "the clients and the daemon"),
    }


def _cycles(cycles: dict[str, dict[str, Row]]) -> str:
    one, many = cycles["1"], cycles[str(IN_FLIGHT)]

    def rate(row: Row) -> str:
        summary = many[row["name"]]
        return f"{summary['rate']:,.0f}" if "rate" in summary else failure(summary)

    columns: dict[str, Cell] = {
        "five nodes": name,
        "median": in_micros("median"),
        "times Rust": lambda each: f"{each['median'] / one[RUST]['median']:.2f}",
        "99th percentile": in_micros("p99"),
        f"cycles/s, {IN_FLIGHT}": rate,
    }
    return table_of(columns, named(one))
