"""Prints tables as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table. All columns but the first are right-aligned."""
    print(f"\n### {title}\n")
    print(_line(["", *columns]))
    print(_line(["---", *("---:" for _ in columns)]))
    for row in rows:
        print(_line(row), flush=True)


def _line(cells: Sequence[str]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def goal(reached: bool) -> str:
    return "yes" if reached else "**no**"


def micros(value: float) -> str:
    """Formats microseconds; as milliseconds from 10,000 µs."""
    return f"{value / 1000:,.1f} ms" if abs(value) >= 10_000 else f"{value:,.0f} µs"
