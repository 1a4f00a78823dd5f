"""The performance goals of semaphores on five nodes, and whether they are met."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bench.goals import Goal, at_most, ratio
from bench.settings import NODES

USE = "use"
"""The beginning of the names of the contests that show how many permits are in use."""
COST = {"10": 1.3, "1000": 2.0}
"""By limit: how many times as long as an exclusive lock's a cycle may take."""
ROUNDS = {"half load": 1.2, "full load": 2.0}
HAND_OFF = 3.0
"""How many times as long as an uncontended acquire a hand-off may take."""
IN_USE = 9.5
"""How many of 10 permits must be held while others wait."""


def goals(results: dict[str, Any]) -> list[Goal]:
    contests = results["contests"]
    return [
        *_cost(results["cycles"]),
        *_rounds(contests),
        *_hand_off(contests["hand-off"]),
        *_use(in_use(contests)),
        _limit(contests),
    ]


def _cost(rows: list[dict[str, Any]]) -> Iterator[Goal]:
    for row in rows:
        if not row["library"].startswith("quorlock") or row["nodes"] != NODES:
            continue
        for limit, most in COST.items():
            what = f"one cycle at limit {int(limit):,}, {row['library']}"
            times = ratio(row[limit].get("median"), row["lock"].get("median"))
            yield at_most(what, times, most, "times the latency of an exclusive lock")


def _rounds(contests: dict[str, Any]) -> Iterator[Goal]:
    for name, entrants in contests.items():
        for load, most in ROUNDS.items():
            if name.startswith(f"rounds at {load}"):
                for summary in entrants.values():
                    yield at_most(f"median {name}", summary.get("median rounds"), most)


def _hand_off(entrants: dict[str, Any]) -> Iterator[Goal]:
    for name, summary in _quorlock(entrants):
        times = ratio(summary.get("hand-off"), summary.get("alone"))
        if times is not None:
            of_acquire = "times the latency of an uncontended acquire"
            yield at_most(f"hand-off, {name}", times, HAND_OFF, of_acquire)


def _use(entrants: dict[str, Any]) -> Iterator[Goal]:
    for name, summary in with_waiters(entrants):
        most, rounds = ROUNDS["full load"], summary.get("median rounds")
        yield at_most(f"median rounds of 20 contenders for 10 permits, {name}", rounds, most)
        held = summary.get("average held")
        measured = "" if held is None else f"{held:.2f}"
        met = None if held is None else held >= IN_USE
        yield Goal(f"permits in use of 10, {name}", f"at least {IN_USE:g}", measured, met)


def in_use(contests: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the entrants of all contests that show how many permits are in use."""
    return {
        name: summary
        for contest, entrants in contests.items()
        if contest.startswith(USE)
        for name, summary in entrants.items()
    }


def with_waiters(entrants: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Returns the entrants to which a goal applies, and that are more contenders than permits."""
    for name, summary in _quorlock(entrants):
        if summary["contenders"] > summary["limit"]:
            yield name, summary


def _limit(contests: dict[str, Any]) -> Goal:
    """All contests count, whatever the number of nodes."""
    found = [
        summary["overruns"]
        for entrants in contests.values()
        for name, summary in entrants.items()
        if name.startswith("quorlock") and "overruns" in summary
    ]
    met = sum(found) == 0 if found else None
    return Goal(
        "acquisitions above the limit, quorlock, all contests", "none", str(sum(found)), met
    )


def _quorlock(entrants: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, summary in entrants.items():
        if name.startswith("quorlock") and f"N = {NODES}," in name:
            yield name, summary
