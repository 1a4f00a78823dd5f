"""Formats figures and tables as Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bench.goals import Goal

Row = Mapping[str, Any]
Cell = str | Callable[[Row], str]
"""Formats a cell: `"{median:.2f} s"`, or a function of the row."""


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table. All columns but the first are right-aligned."""
    lines = [_line(columns), _line(["---", *("---:" for _ in columns[1:])])]
    return "\n".join(lines + [_line(row) for row in rows])


def table_of(columns: Mapping[str, Cell], rows: Iterable[Row]) -> str:
    """Returns a table with a row for each of the figures in `rows`.

    A row that has a failure instead of figures shows that in the second column.
    """

    def cell(each: Cell, row: Row) -> str:
        return each.format_map(row) if isinstance(each, str) else each(row)

    def cells(row: Row) -> list[str]:
        first, *others = columns.values()
        if "failure" in row:
            return [cell(first, row), failure(row), *("" for _ in others[1:])]
        return [cell(each, row) for each in columns.values()]

    return table(list(columns), map(cells, rows))


def _line(cells: Sequence[str]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def goal_table(goals: Iterable[Goal]) -> str:
    met = {True: "yes", False: "**no**", None: "-"}
    rows = [(each.what, each.goal, each.measured, met[each.met]) for each in goals]
    return table(["what is measured", "goal", "measured", "met"], rows)


def named(summaries: Mapping[str, Row]) -> list[Row]:
    """Returns the summaries as rows, with the names of their contenders."""
    return [{"name": contender, **summary} for contender, summary in summaries.items()]


def name(row: Row) -> str:
    return bold(row["name"])


def bold(contender: str) -> str:
    """Returns the name of a contender, in bold for quorlock."""
    return f"**{contender}**" if contender.startswith("quorlock") else contender


def failure(summary: Row) -> str:
    """Returns the first word of the reason why a summary has no figures."""
    return str(summary["failure"]).partition(":")[0]


def micros(value: float | None) -> str:
    """Formats microseconds; as milliseconds from 10,000 µs."""
    if value is None:
        return "an unknown time"
    return f"{value / 1000:,.1f} ms" if abs(value) >= 10_000 else f"{value:,.0f} µs"


def in_micros(key: str) -> Callable[[Row], str]:
    """Returns a function that formats a figure of a row as microseconds."""
    return lambda row: micros(row[key])


def megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"


def measured(results: Mapping[str, Any]) -> str:
    """Returns a text that says when, where and with what the figures were measured."""
    machine, placement = results["machine"], results["placement"]
    cpus = re.fullmatch(r"servers on CPU \[(.+)\], clients on CPU \[(.+)\]", placement)
    placed = (
        f"The servers ran on CPU {cpus[1]}, and the clients on CPU {cpus[2]}"
        if cpus
        else f"The programs were {placement}"
    )
    return (
        f"The figures in this section were measured on {results['date']} at commit"
        f" {machine['commit']}, on a machine with {machine['CPUs']} CPUs ({machine['processor']},"
        f" {machine['server']}). {placed}"
    )
