"""Generates the section on semaphores of `docs/performance.md` from the results of one run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markdown import failure, micros, placed, table
from parameters import NODES
from semaphores.goals import IN_USE, goals, in_use, with_waiters

Summaries = Mapping[str, Mapping[str, Any]]

_ROUNDS = "rounds at "
"""The beginning of the names of the contests that count rounds."""

_HAND_OFF = ("alone", "hand-off", "vacant")


def section(results: dict[str, Any]) -> str:
    machine, contests = results["machine"], results["contests"]
    return "\n\n".join(
        [
            "## Semaphores",
            "`make bench-semaphores` compares the cost of a semaphore permit with the cost of an"
            " exclusive lock, and measures how contenders share the permits. For the method,"
            " see [bench/semaphores](../bench/semaphores/README.md).",
            _goals(results),
            _cycles(results["cycles"]),
            _rounds(contests),
            _hand_off(contests["hand-off"]),
            _use(in_use(contests)),
            _limit(contests["limit"]),
            f"The figures in this section were measured on {results['date']} at commit"
            f" {machine['commit']}, on a machine with {machine['CPUs']} CPUs"
            f" ({machine['processor']}, {machine['server']})."
            f" {placed(results['placement'])}, except in the last table of this section.",
        ]
    )


def _goals(results: dict[str, Any]) -> str:
    met = {True: "yes", False: "**no**", None: "-"}
    rows = [(each.what, each.goal, each.measured, met[each.met]) for each in goals(results)]
    return "The next table shows the goals for five nodes, and the measured values.\n\n" + table(
        ["what is measured", "goal", "measured", "met"], rows
    )


def _cycles(rows: list[dict[str, Any]]) -> str:
    """The latency of one cycle at a time, and the CPU time of the servers."""
    kinds = [kind for kind in rows[0] if kind not in ("library", "nodes")]
    names = ["exclusive lock", *(f"limit {int(kind):,}" for kind in kinds[1:])]

    def figures(figure: str) -> str:
        lines = [
            [_bold(row["library"]), str(row["nodes"])]
            + [_beside(row[kind], row[kinds[0]], figure) for kind in kinds]
            for row in rows
        ]
        return table([titles[figure], "nodes", *names], lines)

    titles = {
        "median": "one cycle at a time",
        "server cpu per node": "CPU time per node and cycle",
    }
    return (
        "A cycle acquires and releases one uncontended permit or one uncontended lock. The number"
        " in parentheses is the time for a permit divided by the time for an exclusive lock in the"
        " same row.\n\n" + "\n\n".join(figures(figure) for figure in titles)
    )


def _beside(summary: Mapping[str, Any], lock: Mapping[str, Any], figure: str) -> str:
    """Formats a figure, with its ratio to that of the exclusive lock."""
    if figure not in summary:
        return failure(summary)
    text = micros(summary[figure])
    if summary is lock or not lock.get(figure):
        return text
    return f"{text} ({summary[figure] / lock[figure]:.2f})"


def _rounds(contests: Mapping[str, Summaries]) -> str:
    styles = [
        ("limit", ","),
        ("median rounds", "g"),
        ("mean rounds", ".2f"),
        ("per second", ",.0f"),
    ]
    rows = [
        [contest.removeprefix(_ROUNDS).partition(",")[0], *_cells(summary, styles)]
        for contest, entrants in contests.items()
        if contest.startswith(_ROUNDS)
        for summary in entrants.values()
    ]
    rows += [
        ["20 contenders", *_cells(summary, styles)]
        for name, summary in in_use(contests).items()
        if summary.get("median rounds") and f"N = {NODES}, 20 processes" in name
    ]
    columns = ["load", "limit", "median rounds", "mean rounds", "acquisitions per second"]
    return (
        "The next table shows how many rounds an acquire takes. A *round* is one request to every"
        " node. At half load, there are half as many contenders as"
        " permits. At full load, there are as many contenders as permits. In the last row of the"
        " table, there are twice as many contenders as permits, and a contender holds its"
        " permit for 10 ms. In the other rows, a contender holds its permit for 5 to 15 ms if the"
        " limit is 10, and for 0.5 to 1.5 s if the limit is 1,000. Because contenders hold"
        " permits for different times in different rows, compare the numbers of rounds, not the"
        " acquisitions per second.\n\n" + table(columns, rows)
    )


def _hand_off(entrants: Summaries) -> str:
    rows = []
    for name, summary in entrants.items():
        cells = [failure(summary), "", "", ""] if "failure" in summary else ["", "", "", ""]
        if summary.get("hand-off") and summary.get("alone"):
            ratio = f"{summary['hand-off'] / summary['alone']:.2f} times"
            alone, hand_off, vacant = (micros(summary[key]) for key in _HAND_OFF)
            cells = [alone, hand_off, ratio, vacant]
        rows.append([_bold(name), *cells])
    columns = ["20 contenders for 10 permits", "uncontended acquire", "hand-off", "ratio"]
    return (
        "In the next table, each holder keeps its permit for 75 to 225 ms while other contenders"
        " wait. A *hand-off* is the time from the end of a release until a waiter has the permit."
        " The last column of the next table shows the time from the start of the release until a"
        " waiter has the permit.\n\n" + table([*columns, "from the call"], rows)
    )


def _use(entrants: Summaries) -> str:
    styles = [
        ("average held", ".2f"),
        ("per second", ",.0f"),
        ("overruns", ","),
        ("busy CPUs", ".2f"),
    ]
    rows = [
        [_bold(name), *_cells(summary, styles), _cpu_per_acquisition(summary)]
        for name, summary in entrants.items()
    ]
    columns = [
        "contenders for 10 permits",
        "permits in use",
        "acquisitions per second",
        "above the limit",
        "busy CPUs of the servers",
        "CPU time of the servers per acquisition",
    ]
    return (
        "In the next measurement, each contender repeatedly acquires a permit, holds it for 10 ms,"
        " and releases it. The timers of the Rust program have a resolution of 1 ms, so the Rust"
        " program holds permits for about 11 ms. *Permits in use* is the average number of"
        " permits that are held at the same time. *Above the limit* counts the acquisitions after"
        " which there were more holders than permits.\n\nIn the first row of the next table, ten"
        " contenders share the ten permits, so no contender waits. In the first row, a permit is"
        " idle only while its next holder acquires it. In the other"
        " rows, ten of the 20 contenders wait." + _needed(entrants) + "\n\n" + table(columns, rows)
    )


def _cpu_per_acquisition(summary: Mapping[str, Any]) -> str:
    if not summary.get("busy CPUs") or not summary.get("per second"):
        return ""
    return micros(summary["busy CPUs"] / summary["per second"] * 1e6)


def _needed(entrants: Summaries) -> str:
    """Says how much CPU time the goal would need, if it is missed."""
    needed = [
        summary["busy CPUs"] * IN_USE / summary["average held"]
        for _, summary in with_waiters(entrants)
        if summary.get("busy CPUs") and (summary.get("average held") or IN_USE) < IN_USE
    ]
    if not needed:
        return ""
    return (
        " An acquisition costs the servers more CPU time when contenders wait:"
        " a waiter first joins the queue of each node, and each release notifies one waiter. To"
        f" keep {IN_USE:g} of the ten permits in use, five nodes need about {max(needed):.1f} CPUs."
        " In this measurement, however, all nodes share only one CPU. The busier the CPU of the"
        " nodes is, the longer requests wait, and the longer permits are idle."
    )


def _limit(entrants: Summaries) -> str:
    columns = [
        ("acquisitions", ","),
        ("overruns", ","),
        ("most held", ","),
        ("average held", ".2f"),
    ]
    rows = [[_bold(name), *_cells(summary, columns)] for name, summary in entrants.items()]
    names = ["acquisitions", "above the limit", "most held at once", "permits in use"]
    return (
        "In the last table of this section, six processes contend for two permits. Each holder"
        " keeps its permit for 5 to 15 ms. The operating system chooses the CPUs on which clients"
        " and servers run."
        "\n\n" + table(["limit 2", *names], rows)
    )


def _cells(summary: Mapping[str, Any], columns: list[tuple[str, str]]) -> list[str]:
    if "failure" in summary:
        return [failure(summary), *("" for _ in columns[1:])]
    return [
        "" if summary.get(name) is None else format(summary[name], style) for name, style in columns
    ]


def _bold(name: str) -> str:
    """Returns the name of a contender, in bold for quorlock."""
    before, comma, after = name.partition(",")
    name = f"**{before}**" if before.startswith("quorlock") else before[0].upper() + before[1:]
    if before == "redis-semaphore":
        name = before
    return name + comma + after
