"""Contenders take turns in every round, so that a slower machine affects all of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median, quantiles
from time import monotonic
from typing import Any

from bench.contender import Contender, FailedError, Process
from bench.group import Group
from bench.progress import progress
from bench.settings import CYCLES, LIMIT, NODES, ROUNDS, TURN, WARM

Summary = dict[str, Any]

FAILURES = 2
"""The number of consecutive failed turns after which a contender is out."""


@dataclass
class Lane:
    """One process in one setting, and its measurements."""

    contender: Contender
    process: Process
    group: Group
    concurrency: int = 1
    counts_cpu: bool = True
    """Whether the CPU time of the servers is read, which is not possible if some are frozen."""
    micros: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    client_cpu: list[float] = field(default_factory=list)
    server_cpu: list[float] = field(default_factory=list)
    """Of one server on average, per cycle."""
    failures: list[str] = field(default_factory=list)
    in_a_row: int = 0
    pace: float = 0.0
    """The duration of a cycle in the last turn, in seconds."""

    def request(self) -> dict[str, int]:
        # With many in flight, a turn must be long compared with how far nodes outside of the
        # majority may lag behind.
        wanted = CYCLES if self.concurrency == 1 else max(5, 32 * CYCLES // self.concurrency)
        if self.pace:
            wanted = min(wanted, max(1, int(TURN / self.pace)))
        return {"cycles": wanted, "concurrency": self.concurrency}

    def turn(self) -> None:
        """Runs one turn and records its measurements."""
        request = self.request()
        before = self.group.cpu() if self.counts_cpu else 0.0
        try:
            answer = self.process.ask(request)
        except FailedError as error:
            self.fail(error)
            return
        self.in_a_row = 0
        self.pace = answer["seconds"] / request["cycles"]
        count = len(answer["micros"])
        self.micros += answer["micros"]
        self.rates.append(count / answer["seconds"])
        self.client_cpu.append(answer["cpu"] / count * 1e6)
        if self.counts_cpu:
            spent = (self.group.cpu() - before) / len(self.group.servers)
            self.server_cpu.append(spent / count * 1e6)

    def warm_up(self) -> None:
        """Runs cycles that are not counted, for just-in-time compilers and caches."""
        until = monotonic() + WARM
        try:
            while monotonic() < until:
                cycles = max(1, min(20, int(WARM / self.pace))) if self.pace else 1
                request = {"cycles": cycles, "concurrency": self.concurrency}
                self.pace = self.process.ask(request)["seconds"] / cycles
                self.in_a_row = 0
        except FailedError as error:
            self.fail(error)

    def fail(self, error: FailedError) -> None:
        self.failures.append(str(error))
        self.in_a_row += 1

    @property
    def is_out(self) -> bool:
        return bool(self.process.failure) or self.in_a_row >= FAILURES

    def summary(self) -> Summary:
        """Returns the figures: microseconds and CPU microseconds per cycle, cycles per second."""
        if self.is_out or not self.micros:
            return {"failure": self.failures[-1][:120]}
        # Quantiles need at least two values.
        micros = self.micros * 2 if len(self.micros) == 1 else self.micros
        low, middle, high = quantiles(micros, n=4)
        figures = {
            "median": middle,
            "low": low,
            "high": high,
            "p99": quantiles(micros, n=100)[98],
            "rate": median(self.rates),
            "client cpu": median(self.client_cpu),
        }
        if self.counts_cpu:
            figures["server cpu per node"] = median(self.server_cpu)
        return {
            **{name: round(figure, 2) for name, figure in figures.items()},
            "cycles": len(self.micros),
            "failed turns": len(self.failures),
        }


def start(
    stack: ExitStack,
    contenders: Iterable[Contender],
    group: Group,
    *,
    concurrency: int = 1,
    counts_cpu: bool = True,
) -> list[Lane]:
    """Starts a process of each contender, warmed up. They are ended when `stack` is closed."""
    lanes: list[Lane] = []
    stack.callback(_close, lanes)
    for contender in contenders:
        process = Process([*contender.command, *group.urls], contender.environment)
        lanes.append(Lane(contender, process, group, concurrency, counts_cpu))
    try_all(lanes)
    for lane in lanes:
        if not lane.is_out:
            lane.warm_up()
    return lanes


def _close(lanes: Sequence[Lane]) -> None:
    for lane in lanes:
        lane.process.hang_up()  # first tell all of them to exit, then wait for each
    for lane in lanes:
        lane.process.close()


def try_all(lanes: Sequence[Lane]) -> None:
    """Runs one cycle of all contenders concurrently, so that all connect, or hang, together."""
    trying = [lane for lane in lanes if not lane.is_out]
    for lane in trying:
        lane.process.send({"cycles": 1, "concurrency": lane.concurrency})
    until = monotonic() + LIMIT
    for lane in trying:
        try:
            lane.pace = lane.process.receive(max(0.1, until - monotonic()))["seconds"]
        except FailedError as error:
            lane.fail(error)


def rounds(title: str, lanes: Sequence[Lane], count: int = ROUNDS) -> None:
    """Runs the turns. The order differs between rounds, but is the same in every run."""
    for number in range(count):
        progress(f"{title}: round {number + 1} of {count}")
        order = [lane for lane in lanes if not lane.is_out]
        random.Random(number).shuffle(order)
        for lane in order:
            if not lane.is_out:
                lane.turn()


def summaries(lanes: Iterable[Lane]) -> dict[str, Summary]:
    """Returns the summaries by contender."""
    return {lane.contender.name: lane.summary() for lane in lanes}


def compare(
    title: str,
    contenders: Iterable[Contender],
    nodes: int = NODES,
    *,
    concurrency: int = 1,
    count: int = ROUNDS,
) -> dict[str, Summary]:
    """Lets the contenders take turns on new nodes. Returns their summaries."""
    with ExitStack() as stack:
        lanes = start(stack, contenders, Group(stack, nodes), concurrency=concurrency)
        rounds(title, lanes, count)
        return summaries(lanes)
