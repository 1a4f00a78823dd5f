"""Hand-offs and commands. In each round, all contenders take turns with each number of clients."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, median
from typing import Any

from bench.progress import progress
from bench.settings import number, pick
from bench.waiting.contenders import (
    QUORLOCK_MIXED,
    QUORLOCK_NODE,
    QUORLOCK_PYTHON,
    Contender,
    present,
)
from bench.waiting.turns import HandOff, hand_offs, overlaps, summary
from bench.waiting.workers import Outcome, workers

ROUNDS = number("ROUNDS", 4, 1)
SECONDS = pick(2.0, 0.2)
"""The length of a contender's turns in a round: half in a loop, about half waiting."""
WAITING = pick([2, 8, 32], [2, 8])
"""The numbers of processes with which all contenders are measured."""
UNCONTENDED = 1
FURTHER = pick({4: (4, 1), 16: (16, 1), 64: (8, 8)}, {4: (4, 1), 64: (8, 8)})
"""Further numbers of clients, for which only commands are counted: processes, clients in each."""
LOOP = SECONDS / 2
"""The seconds of a loop, in which all clients acquire again and again."""
ALONE = SECONDS / 4
"""The duration with a single client, which needs less time for enough acquires."""
WAITS = dict.fromkeys(WAITING, SECONDS / 2) | {2: SECONDS}
"""The seconds of waits, in each of which all clients get the lock once. Longer with two clients,
which hand the lock off only once."""


@dataclass
class Tally:
    """The results of a contender with one number of clients."""

    loops: list[Outcome] = field(default_factory=list)
    waits: list[Outcome] = field(default_factory=list)


Tallies = dict[tuple[str, int], Tally]
"""The tallies by name of the contender and number of clients."""


def measure() -> dict[str, Any]:
    tallies = _compete(present())
    return {
        "uncontended acquire, µs": (
            alone := {each.name: _uncontended(tallies, each) for each in present()}
        ),
        "wait": {
            str(clients): {
                name: _waits(tallies[name, clients].waits, base) for name, base in alone.items()
            }
            for clients in WAITING
        },
        "come back": {
            str(clients): {
                name: _loops(tallies[name, clients].loops, base) for name, base in alone.items()
            }
            for clients in WAITING
        },
        "commands": {
            name: {
                str(clients): _per_turn(tallies[name, clients].loops)
                for clients in sorted({*WAITING, *FURTHER})
                if (name, clients) in tallies
            }
            for name in alone
        },
        "failures": {
            name: outcome.failure
            for (name, _), tally in tallies.items()
            for outcome in tally.loops + tally.waits
            if outcome.failure
        },
    }


def _compete(contenders: Sequence[Contender]) -> Tallies:
    tallies: Tallies = {}

    def compete(contender: Contender, clients: int, processes: int, each: int = 1) -> None:
        tally = tallies.setdefault((contender.name, clients), Tally())
        number = len(tally.loops) + 1
        progress(f"round {number} of {ROUNDS}: {clients} x {contender.name}")
        name = f"{contender.name}-{clients}-{number}".replace(" ", "-")
        with workers().opened(contender, name, processes, each) as opened:
            seconds = ALONE if clients == UNCONTENDED else LOOP
            tally.loops.append(opened.loop(f"{name}-loop", seconds))
        if clients not in WAITING:
            return
        with workers().opened(contender, name, processes, each) as opened:
            began = time.monotonic()
            while time.monotonic() - began < WAITS[clients] and not opened.stuck:
                tally.waits.append(opened.wait_once(f"{name}-wait-{len(tally.waits)}"))

    for _ in range(ROUNDS):
        for contender in contenders:
            if contender is not QUORLOCK_MIXED:
                compete(contender, UNCONTENDED, 1)
        for clients in WAITING:
            for contender in contenders:
                compete(contender, clients, clients)
        for clients, (processes, each) in FURTHER.items():
            compete(QUORLOCK_PYTHON, clients, processes, each)
    return tallies


def _uncontended(tallies: Tallies, contender: Contender) -> float:
    """Returns the median time of an uncontended acquire; for two languages the mean of both."""
    parts = [QUORLOCK_PYTHON, QUORLOCK_NODE] if contender is QUORLOCK_MIXED else [contender]
    return fmean(
        median(
            (turn.acquired - turn.called) / 1000
            for outcome in tallies[part.name, UNCONTENDED].loops
            for turn in outcome.turns
        )
        for part in parts
    )


def _waits(outcomes: Sequence[Outcome], base: float) -> dict[str, Any]:
    turns = sum(len(outcome.turns) for outcome in outcomes)
    unfinished = sum(len(outcome.unfinished) for outcome in outcomes)
    return _described(_hand_offs(outcomes), base, outcomes) | {
        "commands": _per_turn(outcomes),
        "unfinished": unfinished / (turns + unfinished),
    }


def _loops(outcomes: Sequence[Outcome], base: float) -> dict[str, Any]:
    found = _hand_offs(outcomes)
    return _described(found, base, outcomes) | {
        "turns per second": len(found) / (len(outcomes) * LOOP),
        "to itself": sum(each.same for each in found) / max(1, len(found)),
        "never": fmean(
            outcome.clients - len({t.client for t in outcome.turns if t.acquired <= outcome.until})
            for outcome in outcomes
        ),
    }


def _hand_offs(outcomes: Sequence[Outcome]) -> list[HandOff]:
    return [each for outcome in outcomes for each in hand_offs(outcome.turns, outcome.until)]


def _described(
    found: Sequence[HandOff], base: float, outcomes: Sequence[Outcome]
) -> dict[str, Any]:
    times = summary([each.micros for each in found])
    return {
        "hand-offs": asdict(times) if times else None,
        "times uncontended": times.median / base if times else None,
        "failures": sum(outcome.failures for outcome in outcomes),
        "overlaps": sum(overlaps(outcome.turns) for outcome in outcomes),
    }


def _per_turn(outcomes: Sequence[Outcome]) -> float:
    """Returns the commands per node and acquisition, including those after the end of the time."""
    turns = sum(len(outcome.turns) for outcome in outcomes)
    return sum(outcome.sent for outcome in outcomes) / turns if turns else float("inf")
