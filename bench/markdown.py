"""Formats figures and tables as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table. All columns but the first are right-aligned."""
    lines = [_line(columns), _line(["---", *("---:" for _ in columns[1:])])]
    return "\n".join(lines + [_line(row) for row in rows])


def _line(cells: Sequence[str]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def micros(value: float) -> str:
    """Formats microseconds; as milliseconds from 10,000 µs."""
    return f"{value / 1000:,.1f} ms" if value >= 10_000 else f"{value:,.0f} µs"


def failure(summary: Mapping[str, Any]) -> str:
    """Returns the first word of the reason why a summary has no figures."""
    return str(summary["failure"]).partition(":")[0]


def placed(placement: str) -> str:
    """Returns a clause about the CPUs of servers and clients, from the result of `place`."""
    cpus = re.fullmatch(r"servers on CPU \[(.+)\], clients on CPU \[(.+)\]", placement)
    if cpus is None:
        return f"The programs were {placement}"
    return f"The servers ran on CPU {cpus[1]}, and the clients on CPU {cpus[2]}"


def name(contender: str) -> str:
    """Returns the name of a contender, in bold for quorlock."""
    return f"**{contender}**" if contender.startswith("quorlock") else contender
