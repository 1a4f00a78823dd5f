"""Formats the results of the topic for `docs/performance.md`."""

from __future__ import annotations

from statistics import median
from typing import Any

from bench.markdown import table


def values(results: dict[str, Any]) -> dict[str, str]:
    ttl = f"{results['ttl']:g} s"
    rows = {
        "hand-over to a successor": results["hand-over"],
        "release": results["release"],
        f"crash, ttl {ttl}": results["crash"],
    }
    return {
        "ttl": ttl,
        "shortest": f"{results['ttl'] * 2 / 3:g}",
        "changes": table(
            ["change by", "times", "median", "longest"],
            [
                [name, str(len(times)), _milliseconds(median(times)), _milliseconds(max(times))]
                for name, times in rows.items()
            ],
        ),
        "longest_observed": _milliseconds(max(results["observer"])),
        "median_observed": _milliseconds(median(results["observer"])),
    }


def _milliseconds(value: float) -> str:
    """Formats milliseconds; as seconds from one second."""
    return f"{value / 1000:.2f} s" if value >= 1000 else f"{value:.2f} ms"
