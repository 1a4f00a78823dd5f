"""Hand-offs and commands. In each round, all contenders take turns with each number of clients."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from measure import HandOff, hand_offs, overlaps, summary
from progress import progress
from servers import Server
from settings import (
    COMMANDS_GOAL,
    FLAT_GOAL,
    FURTHER,
    HAND_OFF_GOAL,
    QUORLOCK_MIXED,
    QUORLOCK_NODE,
    QUORLOCK_PYTHON,
    ROUNDS,
    SECONDS,
    UNCONTENDED,
    WAITING,
    Contender,
)
from tables import goal, micros, table
from workers import Bout, Workers

FIGHT = SECONDS / 2
ALONE = SECONDS / 4
"""The duration with a single client, which needs less time for enough acquires."""
LAPS = dict.fromkeys(WAITING, SECONDS / 2) | {2: SECONDS}
"""The total seconds of laps. Longer with two clients, where a lap has only one hand-off."""

TIMES = ["hand-off", "quartiles", "p99", "times uncontended"]
WITHIN = f"within {HAND_OFF_GOAL:g} x"
LAP_COLUMNS = ["uncontended", *TIMES, "commands", "never had it", "failures", WITHIN]
FIGHT_COLUMNS = ["turns/s", *TIMES, "to itself", "never had it", "failures", WITHIN]


@dataclass
class Tally:
    """The results of a contender with one number of clients."""

    fights: list[Bout] = field(default_factory=list)
    laps: list[Bout] = field(default_factory=list)

    @property
    def acquires(self) -> list[float]:
        """The durations of the acquires in microseconds."""
        turns = (turn for bout in self.fights for turn in bout.turns)
        return [(turn.acquired - turn.called) / 1000 for turn in turns]

    @property
    def overlaps(self) -> int:
        return sum(overlaps(bout.turns) for bout in self.fights + self.laps)

    @property
    def error(self) -> str:
        return next((bout.error for bout in self.fights + self.laps if bout.error), "")


Tallies = dict[tuple[str, int], Tally]
"""The tallies by name of the contender and number of clients."""


def measure(workers: Workers, servers: Sequence[Server], contenders: list[Contender]) -> Tallies:
    tallies: Tallies = {}

    def compete(contender: Contender, clients: int, processes: int, each: int = 1) -> None:
        tally = tallies.setdefault((contender.name, clients), Tally())
        number = len(tally.fights) + 1
        progress(f"round {number} of {ROUNDS}: {clients} x {contender.name}")
        name = f"{contender.name}-{clients}-{number}".replace(" ", "-")
        with workers.opened(contender, servers, name, processes, each) as fighters:
            seconds = ALONE if clients == UNCONTENDED else FIGHT
            tally.fights.append(fighters.fight(f"{name}-fight", seconds))
        if clients not in WAITING:
            return
        with workers.opened(contender, servers, name, processes, each) as fighters:
            began = time.monotonic()
            while time.monotonic() - began < LAPS[clients] and not fighters.stuck:
                tally.laps.append(fighters.lap(f"{name}-lap-{len(tally.laps)}"))

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


def uncontended(tallies: Tallies, contender: Contender) -> float:
    """Returns the median time of an uncontended acquire; for two languages the mean of both."""
    parts = [QUORLOCK_PYTHON, QUORLOCK_NODE] if contender is QUORLOCK_MIXED else [contender]
    return statistics.fmean(
        statistics.median(tallies[part.name, UNCONTENDED].acquires) for part in parts
    )


def report(tallies: Tallies, contenders: list[Contender]) -> dict[str, Any]:
    alone = {c.name: uncontended(tallies, c) for c in contenders}
    results: dict[str, Any] = {"uncontended acquire, µs": alone}
    for clients in WAITING:
        rows = []
        for contender in contenders:
            found = _laps(tallies[contender.name, clients], alone[contender.name])
            results.setdefault(f"{clients} clients wait", {})[contender.name] = found
            cells = [micros(alone[contender.name]), *_times(found), f"{found['commands']:.1f}"]
            cells += [f"{found['unfinished']:.0%}", str(found["failures"])]
            rows.append([contender.name, *cells, _within(contender, found)])
        table(f"Hand-off, {clients} processes that wait", LAP_COLUMNS, rows)
    for clients in WAITING:
        rows = []
        for contender in contenders:
            found = _fights(tallies[contender.name, clients], alone[contender.name])
            results.setdefault(f"{clients} clients come back", {})[contender.name] = found
            cells = [f"{found['turns per second']:,.0f}", *_times(found)]
            cells += [f"{found['to itself']:.0%}", f"{found['never']:.1f}", str(found["failures"])]
            rows.append([contender.name, *cells, _within(contender, found)])
        table(f"Hand-off, {clients} processes that come back at once", FIGHT_COLUMNS, rows)
    for (name, clients), tally in tallies.items():
        if tally.overlaps:
            print(f"\n{name}, {clients} clients: {tally.overlaps} times two had the lock at once.")
    results["errors"] = {name: tally.error for (name, _), tally in tallies.items() if tally.error}
    for name, error in results["errors"].items():
        print(f"\nA failure of {name}: {error[:200]}")
    return results | {"commands": _commands(tallies, contenders)}


def _laps(tally: Tally, base: float) -> dict[str, Any]:
    found = [each for bout in tally.laps for each in hand_offs(bout.turns, bout.until)]
    turns = sum(len(bout.turns) for bout in tally.laps)
    unfinished = sum(len(bout.unfinished) for bout in tally.laps)
    return _described(found, base) | {
        "commands": _per_turn(tally.laps),
        "unfinished": unfinished / (turns + unfinished),
        "failures": sum(bout.failures for bout in tally.laps),
        "overlaps": sum(overlaps(bout.turns) for bout in tally.laps),
    }


def _fights(tally: Tally, base: float) -> dict[str, Any]:
    found = [each for bout in tally.fights for each in hand_offs(bout.turns, bout.until)]
    return _described(found, base) | {
        "turns per second": len(found) / (len(tally.fights) * FIGHT),
        "to itself": sum(each.same for each in found) / max(1, len(found)),
        "never": statistics.fmean(
            bout.clients - len({t.client for t in bout.turns if t.acquired <= bout.until})
            for bout in tally.fights
        ),
        "failures": sum(bout.failures for bout in tally.fights),
        "overlaps": sum(overlaps(bout.turns) for bout in tally.fights),
    }


def _described(found: Sequence[HandOff], base: float) -> dict[str, Any]:
    if (times := summary([each.micros for each in found])) is None:
        return {"hand-offs": None}
    return {"hand-offs": asdict(times), "times uncontended": times.median / base}


def _times(found: dict[str, Any]) -> list[str]:
    if (times := found["hand-offs"]) is None:
        return ["too few", "", "", ""]
    return [
        micros(times["median"]),
        f"{micros(times['low'])} to {micros(times['high'])}",
        micros(times["p99"]),
        f"{found['times uncontended']:,.2f}",
    ]


def _within(contender: Contender, found: dict[str, Any]) -> str:
    if contender.is_peer:
        return ""
    return goal(found.get("times uncontended", float("inf")) <= HAND_OFF_GOAL)


def _per_turn(bouts: Sequence[Bout]) -> float:
    """Returns the commands per node and acquisition, including those after the end of the time."""
    turns = sum(len(bout.turns) for bout in bouts)
    return sum(bout.sent for bout in bouts) / turns if turns else float("inf")


def _commands(tallies: Tallies, contenders: list[Contender]) -> dict[str, Any]:
    """Prints and returns the commands per node and acquisition by number of clients, where all
    clients acquire again immediately."""
    counts = sorted({*WAITING, *FURTHER})
    results = {
        contender.name: {
            str(clients): _per_turn(tallies[contender.name, clients].fights)
            for clients in counts
            if (contender.name, clients) in tallies
        }
        for contender in contenders
    }
    rows = []
    for contender in contenders:
        row = results[contender.name]
        most, least = max(row.values()), min(row.values())
        verdicts = ["", ""]
        if not contender.is_peer:
            verdicts = [goal(most <= COMMANDS_GOAL), goal(most <= least * FLAT_GOAL)]
        figures = [f"{row[str(n)]:.1f}" if str(n) in row else "" for n in counts]
        rows.append([contender.name, *figures, *verdicts])
    table(
        "Commands per node and acquisition, by the number of clients that come back at once",
        [*map(str, counts), f"at most {COMMANDS_GOAL:g}", f"most within {FLAT_GOAL:g} x least"],
        rows,
    )
    return results
