"""Runs the contests: all entrants take turns, each on servers of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from servers import Servers

from bench.contender import FailedError
from bench.group import Group
from bench.placing import among_servers, anywhere
from bench.progress import progress
from bench.semaphores import zookeeper
from bench.semaphores.contests import CONTESTS, Contest, Entrant
from bench.semaphores.crowd import Answer, Crowd, Load
from bench.semaphores.timeline import Timeline, micros
from bench.settings import pick

ROUNDS = pick(6, 1)
SECONDS = pick(3.0, 0.4)
"""The length of a turn of a crowd."""
SECONDS_ALONE = pick(0.5, 0.1)
"""The length of a turn of a single task."""
WARM = pick(2.0, 0.2)
"""The length of the first turn of a crowd, which is not counted."""
_ALONE = Load(tasks=1, hold=0.005)


def measure() -> dict[str, dict[str, Any]]:
    """Returns the figures by contest and entrant."""
    return {contest.name: _measure(contest) for contest in CONTESTS}


@dataclass
class _Lane:
    """An entrant in a contest, and what it did."""

    crowd: Crowd
    load: Load
    timeline: Timeline
    rounds: list[int] = field(default_factory=list)
    alone: list[int] = field(default_factory=list)
    """The latency of each uncontended acquire, in nanoseconds."""
    nodes: Group | None = None
    """The servers, if they have CPUs of their own whose time can be read."""
    busy: list[float] = field(default_factory=list)
    """For each turn, the CPU time that all servers together used, divided by the time."""
    failure: str = ""

    def turn(self) -> None:
        before = self.nodes.cpu() if self.nodes else 0.0
        answer = self.crowd.run(self.load, SECONDS)
        if self.nodes:
            self.busy.append((self.nodes.cpu() - before) / SECONDS)
        self.timeline.add(answer.processes)
        self.rounds += answer.rounds
        self.alone += _latencies(self.crowd.run(_ALONE, SECONDS_ALONE, processes=1))

    def summary(self) -> dict[str, Any]:
        if self.failure:
            return {"failure": self.failure}
        figures = self.timeline.summary() | {"alone": micros(self.alone)}
        if self.busy:
            figures["busy CPUs"] = round(fmean(self.busy), 2)
        if self.rounds:
            figures |= {"median rounds": median(self.rounds), "mean rounds": fmean(self.rounds)}
        return figures


def _latencies(answer: Answer) -> Sequence[int]:
    return [
        turn.granted - turn.began
        for turns in answer.processes
        for turn in turns
        if turn.granted is not None
    ]


def _measure(contest: Contest) -> dict[str, Any]:
    with ExitStack() as stack:
        progress(f"{contest.name}: {len(contest.entrants)} crowds start")
        lanes = [_start(stack, contest, entrant) for entrant in contest.entrants]
        for number in range(ROUNDS):
            progress(f"{contest.name}: round {number + 1} of {ROUNDS}")
            for lane in lanes:
                _try(lane, lane.turn)
        return {
            entrant.name: {"limit": contest.limit, "contenders": entrant.contenders}
            | lane.summary()
            for entrant, lane in zip(contest.entrants, lanes, strict=True)
        }


def _start(stack: ExitStack, contest: Contest, entrant: Entrant) -> _Lane:
    with nullcontext() if contest.pinned else anywhere():
        urls, group = _nodes(stack, contest, entrant)
        crowd = Crowd(stack, entrant.program, contest.limit, entrant.processes, urls)
    lane = _Lane(crowd, contest.load(entrant), Timeline(contest.limit), nodes=group)
    _try(lane, lambda: crowd.run(lane.load, WARM))
    return lane


def _nodes(
    stack: ExitStack, contest: Contest, entrant: Entrant
) -> tuple[Sequence[str], Group | None]:
    if entrant.program.needs_zookeeper:
        with among_servers() if contest.pinned else nullcontext():
            return zookeeper.start(stack, entrant.nodes), None
    if contest.pinned:
        group = Group(stack, entrant.nodes)
        return group.urls, group
    return stack.enter_context(Servers(entrant.nodes)).urls, None


def _try(lane: _Lane, run: Callable[[], object]) -> None:
    """Notes if a process fails; the crowd is then out."""
    try:
        if not lane.failure:
            run()
    except FailedError as error:
        lane.failure = str(error)
