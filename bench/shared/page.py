"""Formats the results of the topic for `docs/performance.md`."""

from __future__ import annotations

from typing import Any

from bench.markdown import Cell, Row, in_micros, micros, name, named, table, table_of


def values(results: dict[str, Any]) -> dict[str, str]:
    exclusive, readers = (results["together"][kind] for kind in ("exclusive", "readers"))
    return {
        "alone": _alone(results["alone"]),
        "together": _together(exclusive, readers),
        "rate": f"{readers['rate'] / exclusive['rate']:.2f} times",
        "phases": _phases(results["phases"]),
    }


def _alone(alone: dict[str, dict[str, Row]]) -> str:
    """The cost of one cycle at a time."""
    rows = []
    for nodes, figures in alone.items():
        for library, kinds in {
            "**quorlock Rust (async)**": ("exclusive", "shared"),
            "Redisson": ("redisson write", "redisson read"),
        }.items():
            if all("median" in figures.get(kind, {}) for kind in kinds):
                exclusive, shared = (figures[kind]["median"] for kind in kinds)
                ratio = f"{shared / exclusive:.2f} times"
                rows.append([library, nodes, micros(exclusive), micros(shared), ratio])
    return table(["one cycle at a time", "nodes", "exclusive", "shared", "ratio"], rows)


def _together(exclusive: Row, readers: Row) -> str:
    """The throughput of many readers of one resource."""
    columns: dict[str, Cell] = {
        "1,000 loops": "{name}",
        "cycles per second": "{rate:,.0f}",
        "scripts per node": "{scripts:.2f}",
        "CPU time per node": in_micros("server cpu per node"),
    }
    rows = {
        "1,000 exclusive locks of 1,000 resources": exclusive,
        "1,000 shared locks of one resource": readers,
    }
    return table_of(columns, named(rows))


def _setting(row: Row) -> str:
    return name(row).replace("redisson", "Redisson")


def _phases(phases: dict[str, Row]) -> str:
    """How long a writer waits among readers."""

    def cell(key: str, unit: str = "") -> Cell:
        return lambda each: "" if each[key] is None else f"{each[key]:,.0f}{unit}"

    columns: dict[str, Cell] = {
        "a writer among 64 readers": _setting,
        "granted within 10 s": lambda each: (
            f"{each['writes'] - each['failed writes']} of {each['writes']}"
        ),
        "median wait": cell("median wait ms", " ms"),
        "longest wait": cell("longest wait ms", " ms"),
        "most later readers": cell("most later readers"),
        "reads per second": "{reads per second:,.0f}",
    }
    return table_of(columns, named(phases))
