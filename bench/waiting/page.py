"""Formats the results as Markdown tables. `docs/waiting.md` explains them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.markdown import Cell, Row, micros, named, table_of


def tables(results: dict[str, Any]) -> str:
    handing = results["hand-offs"]
    counts = handing["commands"]["quorlock Python"]
    titled: dict[str, tuple[Mapping[str, Cell], Mapping[str, Row]]] = {
        **{
            f"Hand-off, {clients} processes that wait": (_WAITS, found)
            for clients, found in handing["wait"].items()
        },
        **{
            f"Hand-off, {clients} processes that come back at once": (_LOOPS, found)
            for clients, found in handing["come back"].items()
        },
        "Commands per node and acquisition, by the number of clients that come back at once": (
            {"": "{name}", **{count: _known(count, ".1f") for count in counts}},
            handing["commands"],
        ),
        "Equal clients for a longer time": (_FAIRNESS, results["fairness"]),
        "Waiters in one process: commands per node": (_CROWD, results["crowd"]),
        "Waiters of a lock that stays held: their process's CPU, % of a core": (
            _IDLE,
            {
                f"{name}, {locks}": loads
                for name, by_locks in results["idle"].items()
                for locks, loads in by_locks.items()
            },
        ),
        "A holder that dies, ttl 1 s: the next one has the lock beyond the ttl": (
            _DEATH,
            {"quorlock": results["death"]},
        ),
    }
    return "\n\n".join(
        [
            "**Uncontended acquire:** "
            + ", ".join(
                f"{name} {micros(time)}"
                for name, time in handing["uncontended acquire, µs"].items()
            ),
            *(
                f"### {title}\n\n{table_of(columns, named(rows))}"
                for title, (columns, rows) in titled.items()
            ),
            *(f"{name} is left out: {why}" for name, why in results["missing"].items()),
            *(f"A failure of {name}: {why[:200]}" for name, why in handing["failures"].items()),
        ]
    )


def _known(key: str, style: str) -> Cell:
    return lambda row: format(row[key], style) if key in row else ""


def _time(key: str) -> Cell:
    return lambda row: micros(row["hand-offs"][key]) if row["hand-offs"] else "too few"


def _quartiles(row: Row) -> str:
    times = row["hand-offs"]
    return f"{micros(times['low'])} to {micros(times['high'])}" if times else ""


def _times_uncontended(row: Row) -> str:
    times = row["times uncontended"]
    return "" if times is None else f"{times:,.2f}"


_TIMES: dict[str, Cell] = {
    "hand-off": _time("median"),
    "quartiles": _quartiles,
    "p99": _time("p99"),
    "times uncontended": _times_uncontended,
}
_ERRORS = {"failures": "{failures}", "held by two": "{overlaps}"}
_WAITS: dict[str, Cell] = {
    "": "{name}",
    **_TIMES,
    "commands": "{commands:.1f}",
    "never had it": "{unfinished:.0%}",
    **_ERRORS,
}
_LOOPS: dict[str, Cell] = {
    "": "{name}",
    "turns/s": "{turns per second:,.0f}",
    **_TIMES,
    "to itself": "{to itself:.0%}",
    "never had it": "{never:.1f}",
    **_ERRORS,
}
_FAIRNESS = {
    "": "{name}",
    "turns, luckiest / unluckiest": "{luckiest} / {unluckiest}",
    "ratio of turns": "{turns ratio:.2f}",
    "wait, longest / average": "{longest:.2f} / {average:.3f} s",
    "ratio of waits": "{wait ratio:.1f}",
}
_CROWD = {
    "": "{name}",
    "per second, 1 waits": "{one per second:.1f}",
    "500 wait": "{many per second:.1f}",
    "per acquisition, 500 had waited": "{many per acquisition:.1f}",
}
_IDLE: dict[str, Cell] = {
    "": "{name}",
    **{f"{waiters} wait": _known(waiters, ".1f") for waiters in ("0", "100", "500")},
}
_DEATH = {
    "": "{name}",
    "times": "{times}",
    "median": "{median:.0f} ms",
    "most": "{most:.0f} ms",
}
