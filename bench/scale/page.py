"""Formats the results of the topic for `docs/performance.md`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from bench.markdown import Cell, Row, in_micros, megabytes, micros, name, table_of
from bench.names import RUST


def values(results: dict[str, Any]) -> dict[str, str]:
    own = [each for each in results["held"] if each["name"] == RUST]
    samples, processes = results["distinct"], results["processes"]
    resources, nodes = (by_count(results[key]) for key in ("resources", "nodes"))
    return {
        "held": _held(results["held"]),
        "leases": _range(own, "leases"),
        **{
            f"{side}_{what}": spread(own, f"{side} {what}")
            for side in ("client", "server")
            for what in ("cpu", "bytes")
        },
        **_distinct(samples),
        "processes": _processes(processes),
        "hand_over": _hand_over(processes),
        "process_counts": _range(processes, "processes"),
        "hand_over_spread": spread(processes, "hand-over ms"),
        "resources": _resources(resources),
        "fewest_resources": str(resources[0]["count"]),
        "most_resources": str(resources[-1]["count"]),
        "resources_time": _growth(resources, "median"),
        "resources_cpu": _growth(resources, "server cpu per node"),
        "nodes": _nodes(nodes),
        "node_counts": _range(nodes, "count"),
        "nodes_cpu": spread(nodes, "server cpu per node"),
    }


def spread(rows: Iterable[Row], key: str) -> str:
    """Returns how much the figures differ, as words."""
    known = [row[key] for row in rows]
    low, high = min(known), max(known)
    return f"a factor of {high / low:.2f}" if low > 0 else "an unknown factor"


def _range(rows: Sequence[Row], key: str) -> str:
    return f"{rows[0][key]:,} to {rows[-1][key]:,}"


def _growth(rows: Sequence[Row], key: str) -> str:
    return f"{rows[-1][key] / rows[0][key]:.1f} times"


def by_count(summaries: dict[str, Row]) -> list[Row]:
    """Returns the summaries that have figures, with the count and the figures per unit."""
    return [
        {
            "count": int(count),
            "cycle per unit": one["median"] / int(count),
            "client cpu per unit": one["client cpu"] / int(count),
            "server cpu per unit": one["server cpu per node"] / int(count),
            **one,
        }
        for count, one in summaries.items()
        if "median" in one
    ]


def _held(rows: Iterable[Row]) -> str:
    columns: dict[str, Cell] = {
        "leases": lambda each: f"{name(each)}, {each['leases']:,}",
        "acquired/s": lambda each: f"{each['leases'] / each['seconds to acquire']:,.0f}",
        "bytes": "{client bytes:,.0f}",
        "bytes on a server": "{server bytes:,.0f}",
        "CPU": "{client cpu:.2f} µs",
        "CPU of a server": "{server cpu:.2f} µs",
    }
    return table_of(columns, rows)


def _distinct(samples: Sequence[Row]) -> dict[str, str]:
    half, tenth = len(samples) // 2, len(samples) // 10
    growth = samples[-1]["client bytes"] - samples[half]["client bytes"]
    peak = max(samples, key=lambda each: each["server bytes"])
    columns: dict[str, Cell] = {
        "resources": "{resources:,}",
        "time": "{elapsed:.0f} s",
        "cycles/s": "{rate:,.0f}",
        "client": lambda each: megabytes(each["client bytes"]),
        "server": lambda each: megabytes(each["server bytes"]),
        "keys on the server": "{keys:,}",
    }
    return {
        "distinct": table_of(columns, samples[9::10]),
        "change": f"{'grew' if growth >= 0 else 'shrank'} by {megabytes(abs(growth))}",
        "peak": megabytes(peak["server bytes"]),
        "peak_keys": f"{peak['keys']:,}",
        "end": megabytes(samples[-1]["server bytes"]),
        "cpu_before": _mean_cpu(samples[:half]),
        "cpu_after": _mean_cpu(samples[-tenth:]),
    }


def _mean_cpu(samples: Sequence[Row]) -> str:
    return micros(fmean(each["server cpu"] for each in samples))


def _processes(rows: Iterable[Row]) -> str:
    columns: dict[str, Cell] = {
        "processes": "{processes:,}",
        "connections": "{connections:,}",
        "waiting": "{connections, waiting:,}",
        "memory": lambda each: f"{each['client bytes'] / 1e3:,.0f} kB",
        "memory on a server": lambda each: f"{each['server bytes'] / 1e3:,.0f} kB",
        "idle CPU": "{idle client cpu:,.0f} µs",
        "idle CPU of a server": "{idle server cpu:,.1f} µs",
    }
    return table_of(columns, rows)


def _hand_over(rows: Iterable[Row]) -> str:
    columns: dict[str, Cell] = {
        "processes": "{processes:,}",
        "hand-over": "{hand-over ms:.2f} ms",
        "median": "{median hand-over ms:.2f} ms",
        "longest": "{longest hand-over ms:.1f} ms",
        "requests": "{scripts:.1f}",
        "CPU of a server": in_micros("server cpu"),
        "CPU while waiting": "{waiting server cpu:.1f} %",
    }
    return table_of(columns, rows)


def _resources(rows: Iterable[Row]) -> str:
    columns: dict[str, Cell] = {
        "resources": "{count}",
        "cycle": in_micros("median"),
        "cycle per resource": in_micros("cycle per unit"),
        "CPU": in_micros("client cpu"),
        "CPU of a server": in_micros("server cpu per node"),
        "CPU of a server per resource": "{server cpu per unit:.1f} µs",
    }
    return table_of(columns, rows)


def _nodes(rows: Iterable[Row]) -> str:
    columns: dict[str, Cell] = {
        "nodes": "{count}",
        "cycle": in_micros("median"),
        "per node": in_micros("cycle per unit"),
        "CPU per node": "{client cpu per unit:.1f} µs",
        "CPU of a server": "{server cpu per node:.1f} µs",
    }
    return table_of(columns, rows)
