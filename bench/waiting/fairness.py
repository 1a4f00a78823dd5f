"""Fairness: equal clients that contend for the same lock for a longer time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from measure import fairness
from progress import progress
from servers import Server
from settings import FAIR, SECONDS, TURNS_GOAL, WAIT_GOAL, Contender
from tables import goal, table
from workers import Workers

CLIENTS = 16
LENGTH = 10 * SECONDS
COLUMNS = [
    "turns, luckiest / unluckiest",
    "ratio",
    f"at most {TURNS_GOAL:g}",
    "wait, longest / average",
    "ratio",
    f"at most {WAIT_GOAL:g}",
]


def measure(
    workers: Workers, servers: Sequence[Server], contenders: list[Contender]
) -> dict[str, Any]:
    results: dict[str, Any] = {}
    rows = []
    for contender in (each for each in FAIR if each in contenders):
        progress(f"fairness: {CLIENTS} x {contender.name}, {LENGTH:g} s")
        name = f"fair-{contender.library}"
        with workers.opened(contender, servers, name, CLIENTS) as fighters:
            bout = fighters.fight(name, LENGTH)
        found = fairness(bout.turns, CLIENTS, bout.until, bout.unfinished)
        results[contender.name] = asdict(found) | {
            "turns ratio": found.turns_ratio,
            "wait ratio": found.wait_ratio,
        }
        turns_goal, wait_goal = "", ""
        if not contender.is_peer:
            turns_goal = goal(found.turns_ratio <= TURNS_GOAL)
            wait_goal = goal(found.wait_ratio <= WAIT_GOAL)
        rows.append(
            [
                contender.name,
                f"{found.luckiest} / {found.unluckiest}",
                f"{found.turns_ratio:.2f}",
                turns_goal,
                f"{found.longest:.2f} / {found.average:.3f} s",
                f"{found.wait_ratio:.1f}",
                wait_goal,
            ]
        )
    table(
        f"Fairness, {CLIENTS} clients, {LENGTH:g} s",
        COLUMNS,
        rows,
    )
    return results
