"""Draws the pictures of the topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.markdown import Row
from bench.names import RUST
from bench.plots import ACCENT, GREY
from bench.scale.page import by_count

Points = tuple[Sequence[float], Sequence[float]]
Panels = Mapping[str, Mapping[str, Points]]
"""The curves of each panel, by their labels."""

COLOURS = [ACCENT, GREY]


BYTES = {"client": "client bytes", "one server": "server bytes"}
CPU = {"client": "client cpu", "one server": "server cpu"}


def draw(results: dict[str, Any]) -> dict[str, Figure]:
    """Returns the pictures by their names."""
    own = [each for each in results["held"] if each["name"] == RUST]
    processes, samples = results["processes"], results["distinct"]
    return {
        "scale-held": _panels(
            "One held lease, by the number of leases",
            "leases",
            {
                "bytes per lease": _curves(own, "leases", BYTES),
                "CPU, µs per lease and second": _curves(own, "leases", CPU),
            },
            is_logarithmic=True,
        ),
        "scale-distinct": _panels(
            "Distinct resources, over time",
            "seconds",
            {
                "cycles per second": _curves(samples, "elapsed", {"": "rate"}),
                "memory, MB": _curves(samples, "elapsed", BYTES, unit=1e6),
            },
            marker="",
        ),
        "scale-processes": _panels(
            "Processes that share one lock, by their number",
            "processes",
            {
                "ms per hand-over": _curves(processes, "processes", {"": "hand-over ms"}),
                "kB per process": _curves(
                    processes,
                    "processes",
                    {"process": "client bytes", "one server": "server bytes"},
                    unit=1e3,
                ),
            },
            is_logarithmic=True,
        ),
        "scale-resources": _cycle(
            results["resources"], "resource", "resources in one lock", "server cpu per unit"
        ),
        "scale-nodes": _cycle(results["nodes"], "node", "nodes", "server cpu per node"),
    }


def _cycle(summaries: dict[str, Row], unit: str, units: str, server_cpu: str) -> Figure:
    rows = by_count(summaries)
    return _panels(
        f"One cycle, by the number of {units}",
        units,
        {
            f"time of a cycle, µs per {unit}": _curves(rows, "count", {"": "cycle per unit"}),
            f"CPU, µs per {unit}": _curves(
                rows, "count", {"client": "client cpu per unit", "one server": server_cpu}
            ),
        },
    )


def _curves(
    rows: Sequence[Row], size: str, keys: Mapping[str, str], unit: float = 1.0
) -> Mapping[str, Points]:
    """Returns a curve for each of the keys, by its label."""
    sizes = [row[size] for row in rows]
    return {label: (sizes, [row[key] / unit for row in rows]) for label, key in keys.items()}


def _panels(
    title: str,
    sizes: str,
    panels: Panels,
    *,
    is_logarithmic: bool = False,
    marker: str = "o",
) -> Figure:
    """Draws panels next to each other. All vertical axes begin at zero."""
    picture, all_axes = pyplot.subplots(1, len(panels), figsize=(9, 2.8), layout="constrained")
    for axes, (heading, curves) in zip(all_axes, panels.items(), strict=True):
        for colour, (label, points) in zip(COLOURS, curves.items(), strict=False):
            axes.plot(*points, color=colour, label=label, marker=marker, markersize=4)
        _finish(axes, heading, sizes, is_logarithmic)
        if len(curves) > 1:
            axes.legend(frameon=False, fontsize=9)
    picture.suptitle(title, x=0.01, ha="left", fontsize=11)
    return picture


def _finish(axes: Axes, heading: str, sizes: str, is_logarithmic: bool) -> None:
    axes.set_title(heading, fontsize=10)
    axes.set_xlabel(sizes)
    if is_logarithmic:
        axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.set_ylim(bottom=0)
