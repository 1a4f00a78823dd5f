"""The cost of a shared cycle beside an exclusive one, alone and by many readers of one resource."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from bench.contender import Contender
from bench.contenders import rust
from bench.group import Group
from bench.peers import java
from bench.progress import progress
from bench.settings import NODES, pick
from bench.turns import Lane, Summary, compare, rounds, start, summaries

ROUNDS = pick(16, 1)
READERS = pick(1000, 100)
"""The loops that read one resource at the same time."""


def quorlock(kind: str) -> Contender:
    """Returns a contender. `kind` is "exclusive", "shared", or "readers" of one resource."""
    return rust(kind, "async", "rust-shared", kind)


def alone() -> dict[str, dict[str, Summary]]:
    """Returns the summaries of one cycle at a time, by the number of nodes."""
    own = [quorlock("exclusive"), quorlock("shared")]
    redisson = [java(f"redisson {kind}", f"redisson-{kind}") for kind in ("write", "read")]
    title = "one cycle at a time, N ="
    return {
        "1": compare(f"{title} 1", own + redisson, 1, count=ROUNDS),
        str(NODES): compare(f"{title} {NODES}", own, count=ROUNDS),
    }


def together() -> dict[str, dict[str, Any]]:
    """Returns the summaries of many loops, with the scripts that a node runs for each cycle."""
    with ExitStack() as stack:
        contenders = [quorlock("exclusive"), quorlock("readers")]
        lanes = start(stack, contenders, Group(stack), concurrency=READERS)
        rounds(f"{READERS:,} loops", lanes, ROUNDS)
        figures = summaries(lanes)
        for lane in lanes:
            progress(f"{READERS:,} loops: the scripts of {lane.contender.name} leases")
            figures[lane.contender.name]["scripts"] = _scripts(lane)
        return figures


def _scripts(lane: Lane) -> float:
    """Returns how many scripts a node runs for each cycle, on average."""
    meters = lane.group.meters
    before, cycles = sum(meter.scripts() for meter in meters), len(lane.micros)
    lane.turn()
    cycles = len(lane.micros) - cycles
    if not cycles:
        raise SystemExit(f"{lane.contender.name}: {lane.failures[-1]}")
    return (sum(meter.scripts() for meter in meters) - before) / len(meters) / cycles
