"""Draws the curves of the section on scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from figures import RUST
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from plots import ACCENT, GREY, save

Results = dict[str, Any]
Points = tuple[Sequence[float], Sequence[float]]
Panels = Mapping[str, Mapping[str, Points]]
"""The curves of each panel, by their labels."""

COLOURS = [ACCENT, GREY]


def draw(results: Results, directory: Path) -> None:
    pictures = {
        "held": _held(results["held"]),
        "distinct": _distinct(results["distinct"]),
        "processes": _processes(results["processes"]),
        "resources": _per_unit(results["resources"], "resource", "resources in one lock"),
        "nodes": _per_unit(results["nodes"], "node", "nodes"),
    }
    for name, picture in pictures.items():
        save(picture, directory / f"performance-scale-{name}.svg")


def _held(rows: Sequence[Results]) -> Figure:
    own = [each for each in rows if each["name"] == RUST]
    return _panels(
        "One held lease, by the number of leases",
        "leases",
        {
            "bytes per lease": {
                "client": _points(own, "leases", "client bytes"),
                "one server": _points(own, "leases", "server bytes"),
            },
            "CPU, µs per lease and second": {
                "client": _points(own, "leases", "client cpu"),
                "one server": _points(own, "leases", "server cpu"),
            },
        },
        is_logarithmic=True,
    )


def _distinct(samples: Sequence[Results]) -> Figure:
    times = [each["elapsed"] for each in samples]
    megabytes = {
        label: (times, [each[key] / 1e6 for each in samples])
        for label, key in {"client": "client bytes", "one server": "server bytes"}.items()
    }
    rates = {"": (times, [each["rate"] for each in samples])}
    panels: Panels = {"cycles per second": rates, "memory, MB": megabytes}
    return _panels("Distinct resources, over time", "seconds", panels, marker="")


def _processes(rows: Sequence[Results]) -> Figure:
    sizes = [each["processes"] for each in rows]
    kilobytes = {
        label: (sizes, [each[key] / 1e3 for each in rows])
        for label, key in {"process": "client bytes", "one server": "server bytes"}.items()
    }
    panels: Panels = {
        "ms per hand-over": {"": _points(rows, "processes", "hand-over ms")},
        "kB per process": kilobytes,
    }
    return _panels(
        "Processes that share one lock, by their number", "processes", panels, is_logarithmic=True
    )


def _per_unit(summaries: Results, unit: str, units: str) -> Figure:
    good = {int(count): one for count, one in summaries.items() if "median" in one}

    def each(key: str) -> Points:
        return list(good), [one[key] / count for count, one in good.items()]

    sizes, servers = each("server cpu per node")
    if unit == "node":
        servers = [one["server cpu per node"] for one in good.values()]
    panels: Panels = {
        f"time of a cycle, µs per {unit}": {"": each("median")},
        f"CPU, µs per {unit}": {"client": each("client cpu"), "one server": (sizes, servers)},
    }
    return _panels(f"One cycle, by the number of {units}", units, panels)


def _points(rows: Sequence[Results], size: str, key: str) -> Points:
    return [each[size] for each in rows], [each[key] for each in rows]


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
