"""Draws the pictures of the topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bench.markdown import Row, failure, micros
from bench.names import FLOOR, FLOOR_ALL, FLOOR_PLAIN
from bench.performance.figures import Figures
from bench.plots import ACCENT, GREY, INK, NEUTRAL

COLOURS = {"quorlock": ACCENT, "floor": GREY, "peer": NEUTRAL}

SHOWN = {
    FLOOR: "raw sockets (floor)",
    FLOOR_ALL: "raw sockets, all nodes",
    FLOOR_PLAIN: "raw sockets, plain lock",
}
"""Labels of contenders whose names are not clear by themselves."""

FAR = 10
"""Bars longer than this multiple of the floor (or of the healthy bar) are cut off."""


@dataclass(frozen=True)
class Bar:
    """The figure of a contender, or the reason why there is none."""

    length: float | None
    label: str


def draw(results: dict[str, Any]) -> dict[str, Figure]:
    """Returns the pictures by their names."""
    figures = Figures(results)
    return {
        "one-at-a-time": _one_at_a_time(figures),
        "throughput": _throughput(figures),
        "faults": _faults(figures),
        "nodes": _nodes(figures),
    }


def _one_at_a_time(figures: Figures) -> Figure:
    summaries = figures.all["one at a time"]["5"]
    names, floor = _fastest_first(summaries), summaries[FLOOR]["median"]
    picture, axes = pyplot.subplots(figsize=(8, 0.3 * len(names) + 1.2))
    _bars(axes, figures, names, _labelled(summaries, "median", micros), FAR * floor)
    axes.axvline(floor, color=GREY, linewidth=1, linestyle="--", zorder=0)
    axes.set_xlabel("µs per acquire + release, median")
    _name(axes, figures, names)
    axes.set_title("One lock at a time on five nodes: shorter is better")
    return picture


def _nodes(figures: Figures) -> Figure:
    by_count = figures.all["one at a time"]
    return _panels(
        figures,
        _fastest_first(by_count["5"]),
        {f"N = {count}": _labelled(each, "median", micros) for count, each in by_count.items()},
        FAR * by_count["1"][FLOOR]["median"],
        "One lock at a time, by the number of nodes (N): shorter is better",
        "µs per acquire + release, median",
    )


def _throughput(figures: Figures) -> Figure:
    levels = figures.all["in flight"]
    best: dict[str, float] = {}
    for summaries in levels.values():
        for each, one in summaries.items():
            best[each] = max(best.get(each, 0.0), one.get("rate", 0.0))
    return _panels(
        figures,
        sorted(best, key=best.__getitem__, reverse=True),
        {
            f"{int(level):,} in flight": _labelled(each, "rate", "{:,.0f}".format)
            for level, each in levels.items()
        },
        1.25 * max(best.values()),  # leaves room for the figures
        "Throughput of one process on five nodes: longer is better",
        "acquire + release per second",
    )


def _fastest_first(summaries: Mapping[str, Row]) -> list[str]:
    """Returns the contenders that have a median, in order."""
    good = {each: one["median"] for each, one in summaries.items() if "median" in one}
    return sorted(good, key=good.__getitem__)


def _labelled(
    summaries: Mapping[str, Row], key: str, label: Callable[[float], str]
) -> dict[str, Bar]:
    return {
        each: Bar(None, failure(one)) if "failure" in one else Bar(one[key], label(one[key]))
        for each, one in summaries.items()
    }


def _faults(figures: Figures) -> Figure:
    faults = figures.all["faults"]
    ratios: dict[str, dict[str, float]] = {}
    panels: dict[str, dict[str, Bar | None]] = {}
    for fault, both in faults.items():
        panel: dict[str, Bar | None] = {}
        for each, one in both["faulty"].items():
            times = figures.times_healthy(each, fault)
            ratios.setdefault(each, {})[fault] = FAR if times is None else min(times, FAR)
            panel[each] = Bar(None, failure(one)) if "failure" in one else _times(times)
        panels[fault] = panel
    # Sort by kind, then by the sum of the ratios.
    kinds = ["floor", "quorlock", "peer"]
    names = sorted(ratios, key=lambda each: (kinds.index(figures.kind(each)), _sum(ratios[each])))
    return _panels(
        figures,
        names,
        panels,
        FAR,
        "One lock at a time while some of five nodes fail: shorter is better",
        "median time, as a multiple of the same contender's on healthy nodes (dashed: the same)",
        mark=1,
    )


def _times(times: float | None) -> Bar | None:
    if times is None:
        return None
    return Bar(times, f"{times:,.2f}" if times < FAR else f"{times:,.0f}")


def _sum(ratios: Mapping[str, float]) -> float:
    return sum(ratios.values())


def _panels(
    figures: Figures,
    names: Sequence[str],
    panels: Mapping[str, Mapping[str, Bar | None]],
    longest: float,
    title: str,
    unit: str,
    *,
    mark: float | None = None,
) -> Figure:
    """Draws panels of bars next to each other, with the names of contenders on the left."""
    picture, all_axes = pyplot.subplots(
        1, len(panels), sharey=True, figsize=(11, 0.3 * len(names) + 1.6), layout="constrained"
    )
    for axes, (heading, bars) in zip(all_axes, panels.items(), strict=True):
        _bars(axes, figures, names, bars, longest)
        axes.set_title(heading, fontsize=10)
        axes.xaxis.set_major_locator(MaxNLocator(3))
        if mark is not None:
            axes.axvline(mark, color=GREY, linewidth=1, linestyle="--", zorder=0)
    _name(all_axes[0], figures, names)
    picture.suptitle(title, x=0.01, ha="left", fontsize=11)
    picture.supxlabel(unit, fontsize=10)
    return picture


def _bars(
    axes: Axes,
    figures: Figures,
    names: Sequence[str],
    bars: Mapping[str, Bar | None],
    longest: float,
) -> None:
    """Draws horizontal bars, the first one at the top. Cut bars have an arrow."""
    for row, each in enumerate(names):
        bar = bars.get(each)
        if bar is None:
            continue
        length = bar.length or 0.0
        colour = COLOURS[figures.kind(each)]
        axes.barh(row, min(length, longest), color=colour, height=0.72)
        # A cut bar reaches the edge, so its figure is drawn on the bar.
        is_cut = length > longest
        axes.text(
            longest * 0.98 if is_cut else length + longest * 0.015,
            row,
            f"{bar.label} →" if is_cut else bar.label,
            va="center",
            ha="right" if is_cut else "left",
            fontsize=9,
            color=GREY if bar.length is None else INK,
            style="italic" if bar.length is None else "normal",
            # Keeps the text readable where a line crosses it.
            bbox=None if is_cut else {"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )
    axes.set_xlim(0, longest * 1.02)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _name(axes: Axes, figures: Figures, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [SHOWN.get(each, each) for each in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    for label, each in zip(axes.get_yticklabels(), names, strict=True):
        if figures.kind(each) == "quorlock":
            label.set_color(ACCENT)
            label.set_fontweight("bold")
