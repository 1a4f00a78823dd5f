"""The goals of waiting, which apply to quorlock only."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

from bench.goals import Goal, at_most

HAND_OFF = 3.0
COMMANDS = 8.0
"""The maximum number of commands per node and acquisition."""
FLAT = 1.5
"""The maximum ratio between the most and the least commands, over all numbers of clients."""
NOISE = 1.0
"""The tolerance in commands per second: about one more or less falls into the measured time."""


def goals(results: dict[str, Any]) -> Iterator[Goal]:
    handing = results["hand-offs"]
    for kind in ("wait", "come back"):
        for clients, contenders in handing[kind].items():
            for name, found in _quorlock(contenders):
                what = f"hand-off, {clients} processes that {kind}, {name}"
                times = found["times uncontended"]
                # Too few hand-offs to measure miss the goal.
                measured = inf if times is None else times
                yield at_most(what, measured, HAND_OFF, "times an uncontended acquire")
    for name, row in _quorlock(handing["commands"]):
        most, least = max(row.values()), min(row.values())
        what = "most commands per node and acquisition"
        yield at_most(f"{what}, {name}", most, COMMANDS)
        yield at_most(f"{what}, {name}", most / least, FLAT, "times the least")
    for name, found in _quorlock(results["fairness"]):
        yield at_most(f"turns of the luckiest client, {name}", found["turns ratio"], 1.5, "times")
        yield at_most(f"longest wait, {name}", found["wait ratio"], 3.0, "times the average")
    for language, found in results["crowd"].items():
        what = f"commands per second of 500 waiters, {language}"
        yield at_most(what, found["many per second"], found["one per second"] + NOISE)
        what = f"commands per acquisition after 500 have waited, {language}"
        yield at_most(what, found["many per acquisition"], COMMANDS)
    what = "time after the ttl of a killed holder until a waiter has the lock"
    yield at_most(what, results["death"]["most"], 100, "ms")
    yield at_most("keys that quorlock leaves behind", len(results["left behind"]), 0)
    overlaps = sum(
        found["overlaps"]
        for kind in ("wait", "come back")
        for contenders in handing[kind].values()
        for _, found in _quorlock(contenders)
    )
    yield at_most("times that two clients had the lock at once, quorlock", overlaps, 0)


def _quorlock(contenders: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return (each for each in contenders.items() if each[0].startswith("quorlock"))
