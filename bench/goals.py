"""The goals of a topic, and whether they are met."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """One row of the table. `met` is None if it was not measured."""

    what: str
    goal: str
    measured: str
    met: bool | None


def at_most(what: str, value: float | None, limit: float, unit: str = "") -> Goal:
    goal = f"at most {limit:g} {unit}".rstrip()
    if value is None:
        return Goal(what, goal, "", None)
    return Goal(what, goal, f"{value:.2f}", value <= limit)


def ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one / other
