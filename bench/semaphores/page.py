"""Formats the results of the topic for `docs/performance.md`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bench.goals import ratio
from bench.markdown import Cell, Row, failure, goal_table, in_micros, micros, named, table, table_of
from bench.semaphores.goals import IN_USE, goals, in_use, with_waiters
from bench.settings import NODES

Summaries = Mapping[str, Row]

_ROUNDS = "rounds at "
"""The beginning of the names of the contests that count rounds."""


def values(results: dict[str, Any]) -> dict[str, str]:
    contests = results["contests"]
    use = in_use(contests)
    return {
        "goals": goal_table(goals(results)),
        "cycles": _cycles("one cycle at a time", results["cycles"], "median"),
        "cpu": _cycles("CPU time per node and cycle", results["cycles"], "server cpu per node"),
        "rounds": _rounds(contests),
        "hand_off": _hand_off(contests["hand-off"]),
        "needed": _needed(use),
        "use": _use(use),
        "limit": _limit(contests["limit"]),
    }


def _cycles(title: str, rows: list[Row], figure: str) -> str:
    kinds = [kind for kind in rows[0] if kind not in ("library", "nodes")]
    lines = [
        [_name(row["library"]), str(row["nodes"])]
        + [_beside(row[kind], row[kinds[0]], figure) for kind in kinds]
        for row in rows
    ]
    limits = (f"limit {int(kind):,}" for kind in kinds[1:])
    return table([title, "nodes", "exclusive lock", *limits], lines)


def _beside(summary: Row, lock: Row, figure: str) -> str:
    """Formats a figure, with its ratio to that of the exclusive lock."""
    if figure not in summary:
        return failure(summary)
    text = micros(summary[figure])
    if summary is lock or not lock.get(figure):
        return text
    return f"{text} ({summary[figure] / lock[figure]:.2f})"


def _rounds(contests: Mapping[str, Summaries]) -> str:
    rows = [
        {"name": contest.removeprefix(_ROUNDS).partition(",")[0], **summary}
        for contest, entrants in contests.items()
        if contest.startswith(_ROUNDS)
        for summary in entrants.values()
    ] + [
        {"name": "20 contenders", **summary}
        for entrant, summary in in_use(contests).items()
        if summary.get("median rounds") and f"N = {NODES}, 20 processes" in entrant
    ]
    columns: dict[str, Cell] = {
        "load": "{name}",
        "limit": "{limit:,}",
        "median rounds": "{median rounds:g}",
        "mean rounds": "{mean rounds:.2f}",
        "acquisitions per second": _known("per second", ",.0f"),
    }
    return table_of(columns, rows)


def _hand_off(entrants: Summaries) -> str:
    def times(row: Row) -> str:
        found = ratio(row.get("hand-off"), row.get("alone"))
        return "" if found is None else f"{found:.2f} times"

    columns: dict[str, Cell] = {
        "20 contenders for 10 permits": _entrant,
        "uncontended acquire": in_micros("alone"),
        "hand-off": in_micros("hand-off"),
        "ratio": times,
        "from the call": in_micros("vacant"),
    }
    return table_of(columns, named(entrants))


def _use(entrants: Summaries) -> str:
    columns: dict[str, Cell] = {
        "contenders for 10 permits": _entrant,
        "permits in use": _known("average held", ".2f"),
        "acquisitions per second": _known("per second", ",.0f"),
        "above the limit": "{overruns:,}",
        "busy CPUs of the servers": _known("busy CPUs", ".2f"),
        "CPU time of the servers per acquisition": _cpu_per_acquisition,
    }
    return table_of(columns, named(entrants))


def _cpu_per_acquisition(row: Row) -> str:
    if not row.get("busy CPUs") or not row.get("per second"):
        return ""
    return micros(row["busy CPUs"] / row["per second"] * 1e6)


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
        f"To keep {IN_USE:g} of the ten permits in use, five nodes need about"
        f" {max(needed):.1f} CPUs. In this measurement, however, all nodes share only one CPU."
    )


def _limit(entrants: Summaries) -> str:
    columns: dict[str, Cell] = {
        "limit 2": _entrant,
        "acquisitions": "{acquisitions:,}",
        "above the limit": "{overruns:,}",
        "most held at once": "{most held:,}",
        "permits in use": _known("average held", ".2f"),
    }
    return table_of(columns, named(entrants))


def _known(key: str, style: str) -> Callable[[Row], str]:
    """Returns a function that formats a figure that some rows do not have."""
    return lambda row: "" if row.get(key) is None else format(row[key], style)


def _entrant(row: Row) -> str:
    return _name(row["name"])


def _name(entrant: str) -> str:
    """Returns the name of an entrant as on the page. The name of quorlock is bold."""
    library, comma, setting = entrant.partition(",")
    if library.startswith("quorlock"):
        library = f"**{library}**"
    elif library != "redis-semaphore":
        library = library[0].upper() + library[1:]
    return library + comma + setting
