"""One writer among readers that come and go."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any

from contender import Process
from group import Group
from parameters import NODES, PROGRAMS
from peers.ecosystems import JAVA
from progress import progress
from shared.settings import HOLD, PATIENCE, PROCESSES, SECONDS, TASKS

Turn = tuple[int, int | None, int | None]
"""When an acquire began, when its lease was granted, and when the release began, in nanoseconds."""

QUORLOCK = [f"{PROGRAMS}/rust-turns"]
REDISSON = [*map(str, JAVA.program[:-1]), "ReadWrite"]


def measure() -> dict[str, dict[str, float]]:
    return {
        f"quorlock, N = {NODES}": _measure(QUORLOCK, NODES),
        "quorlock, N = 1": _measure(QUORLOCK, 1),
        "redisson, N = 1": _measure(REDISSON, 1),
    }


def _measure(command: Sequence[str], nodes: int) -> dict[str, float]:
    progress(f"a writer among readers: {command[-1]}, {nodes} nodes")
    with ExitStack() as stack:
        group = Group(stack, nodes)
        processes = []
        for kind in ["writer", *["reader"] * PROCESSES]:
            process = Process([*command, kind, *group.urls], {})
            stack.callback(process.close)
            processes.append(process)
        # The first turns connect, and are not counted.
        _ask(processes, 1.0)
        writes, *reads = _ask(processes, SECONDS)
        return figures(writes, [turn for turns in reads for turn in turns])


def _ask(processes: Sequence[Process], seconds: float) -> list[list[Turn]]:
    writer, *readers = processes
    for process in readers:
        process.send({"tasks": TASKS, "seconds": seconds, "hold": HOLD})
    writer.send({"tasks": 1, "seconds": seconds, "hold": HOLD})
    limit = seconds + PATIENCE
    return [[tuple(turn) for turn in each.receive(limit)["turns"]] for each in processes]


def figures(writes: Sequence[Turn], reads: Sequence[Turn]) -> dict[str, Any]:
    """Returns how long the writer waited, and which readers it waited for."""
    granted = [(began, got) for began, got, _ in writes if got is not None]
    waits = [(got - began) / 1e6 for began, got in granted]
    # Readers that came after the writer and got the lock before it.
    later = [
        sum(began < came and got is not None and got < own for came, got, _ in reads)
        for began, own in granted
    ]
    served = [(came, got) for came, got, _ in reads if got is not None]
    span = max(end for _, _, end in reads if end) - min(came for came, _ in served)
    return {
        "writes": len(writes),
        "failed writes": len(writes) - len(granted),
        "median wait ms": median(waits) if waits else None,
        "longest wait ms": max(waits) if waits else None,
        "median later readers": median(later) if later else None,
        "most later readers": max(later, default=None),
        "reads per second": len(served) / span * 1e9,
        "longest wait of a reader ms": max(got - came for came, got in served) / 1e6,
    }
