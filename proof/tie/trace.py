"""Reads the steps that the simulation has written (`core/src/testing/simulation/steps.rs`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proof.tie import units

DRIFT = 2_000_000
"""The rounding in the drift allowance of a ttl, in nanoseconds."""


@dataclass(frozen=True)
class Node:
    """A simulated node: the rate of its clock, and the error of its wall clock in microseconds."""

    rate: int
    error: int
    clock: int
    """What its clock showed at the beginning, in nanoseconds."""


@dataclass(frozen=True)
class Client:
    """A simulated process: the rate of its clock, and what that showed at the beginning."""

    rate: int
    origin: int


@dataclass
class World:
    """What does not change in a run."""

    name: str
    nodes: list[Node]
    clients: dict[int, Client]
    names: dict[str, int]
    """The number of each process."""
    fastest: int
    """The fastest rate that the drift factor allows, as a multiple of 2^-24."""
    guard: int
    """The restart guard, or else the longest ttl, in nanoseconds."""
    wait: int
    """What the guard waits."""
    is_guarded: bool
    spread: int
    """More than the largest error of a node's wall clock, in nanoseconds."""
    steps: list[Step] = field(default_factory=list)


@dataclass(frozen=True)
class Step:
    """One line of the file."""

    line: int
    time: int
    """True time, in nanoseconds."""
    client: int | None
    clock: int
    """The client's clock, in nanoseconds."""
    what: str
    details: list[Any]


def read(path: Path) -> World:
    """Reads a run."""
    with path.open() as file:
        lines = [json.loads(line) for line in file]
    described = next(line for line in lines if line[1] == "world")
    nodes = [Node(units.rate(rate), error, clock) for clock, rate, error in described[3]]
    names: dict[str, int] = {}
    clients: dict[int, Client] = {}
    rates = [rate for _, rate, _ in described[3]]
    for _, what, *details in lines:
        if _is_start(what, details):
            name, rate, origin = details
            rates.append(rate)
            names[name] = len(names)
            clients[names[name]] = Client(units.rate(rate), origin)
    begins = [line for line in lines if len(line) > 3 and line[3] == "begin"]
    looks = [line for line in lines if len(line) > 3 and line[3] == "look"]
    drifts = [line[10] for line in begins] + [line[-1] for line in looks]
    drift_factor = max(drifts, default=0.0)
    extensions = [line for line in lines if len(line) > 3 and line[3] == "extending"]
    longest = max([line[7] for line in begins] + [line[6] for line in extensions], default=1)
    guard = looks[0][7] if looks else longest
    errors = [abs(error) for _, _, error in described[3]]
    world = World(
        described[2],
        nodes,
        clients,
        names,
        units.fastest(drift_factor, rates),
        guard,
        guard + int(guard * drift_factor) + DRIFT,
        bool(looks),
        max(errors) * 1000 + 100_000_000,
    )
    world.steps = sorted(_steps(lines, world), key=lambda step: step.time)
    return world


def _is_start(what: str, details: list[Any]) -> bool:
    # A process may be named so, too. Its steps begin with its clock.
    return what == "process" and isinstance(details[0], str)


def _steps(lines: list[list[Any]], world: World) -> Iterator[Step]:
    for number, (time, first, *details) in enumerate(lines, 1):
        if first == "world":
            continue
        if first not in world.names or _is_start(first, details):
            yield Step(number, time, None, 0, first, details)
            continue
        client, (clock, what, *rest) = world.names[first], details
        read_at = {"begin": 2, "extending": 1}.get(what)
        since = clock - rest[read_at] if read_at else 0
        if since > 2:
            # The process was preempted after it read its clock: the step happened before.
            rate = world.clients[client].rate
            time -= -(-(since << units.RATE_BITS) // rate)
        yield Step(number, time, client, clock, what, rest)
