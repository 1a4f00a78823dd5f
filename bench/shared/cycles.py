"""The cost of a shared cycle beside an exclusive one, alone and by many readers of one resource."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from contender import Contender
from group import Group
from parameters import NODES, PROGRAMS
from peers.ecosystems import JAVA
from progress import progress
from shared.settings import READERS, ROUNDS
from turns import Lane, rounds, start

EXCLUSIVE, SHARED, ALL = "exclusive", "shared", "readers"
"""The kinds of loops of `rust-shared`."""


def quorlock(kind: str) -> Contender:
    return Contender(kind, "quorlock", "Rust", "async", [f"{PROGRAMS}/rust-shared", kind])


def redisson(kind: str) -> Contender:
    command = [*map(str, JAVA.program), f"redisson-{kind}"]
    return Contender(f"redisson {kind}", "peer", "Java", "sync", command)


def alone() -> dict[str, dict[str, Any]]:
    """Returns the summaries of one cycle at a time, by the number of nodes."""
    figures = {}
    for nodes in (1, NODES):
        contenders = [quorlock(EXCLUSIVE), quorlock(SHARED)]
        if nodes == 1:
            contenders += [redisson("write"), redisson("read")]
        with ExitStack() as stack:
            lanes = start(stack, contenders, Group(stack, nodes))
            rounds(f"one cycle at a time, {nodes} nodes", lanes, ROUNDS)
            figures[str(nodes)] = summaries(lanes)
    return figures


def together() -> dict[str, Any]:
    """Returns the summaries of many loops, with the scripts that a node runs for each cycle."""
    with ExitStack() as stack:
        contenders = [quorlock(EXCLUSIVE), quorlock(ALL)]
        lanes = start(stack, contenders, Group(stack), concurrency=READERS)
        rounds(f"{READERS:,} loops", lanes, ROUNDS)
        figures = summaries(lanes)
        for lane in lanes:
            progress(f"{READERS:,} loops: the scripts of {lane.contender.name} leases")
            figures[lane.contender.name]["scripts"] = _scripts(lane)
        return figures


def summaries(lanes: Iterable[Lane]) -> dict[str, Any]:
    return {lane.contender.name: lane.summary() for lane in lanes}


def _scripts(lane: Lane) -> float:
    """Returns how many scripts a node runs for each cycle, on average."""
    meters = lane.group.meters
    before, cycles = sum(meter.scripts() for meter in meters), len(lane.micros)
    lane.turn()
    cycles = len(lane.micros) - cycles
    return (sum(meter.scripts() for meter in meters) - before) / len(meters) / cycles
