"""One writer among readers that come and go."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from bench.contender import Process, start_all
from bench.group import Group
from bench.peers.ecosystems import JAVA
from bench.progress import progress
from bench.settings import NODES, PATIENCE, PROGRAMS, pick
from bench.shared.overtaking import Turn, figures

PROCESSES, TASKS = 4, 16
"""The processes of readers beside a writer, and the readers of each."""
HOLD = 0.02
"""The mean time for which such a reader holds its lease, in seconds."""
SECONDS = pick(30, 2)

QUORLOCK = [f"{PROGRAMS}/rust-turns"]
REDISSON = [*map(str, JAVA.program[:-1]), "ReadWrite"]


def measure() -> dict[str, dict[str, Any]]:
    return {
        f"quorlock, N = {NODES}": _measure(QUORLOCK, NODES),
        "quorlock, N = 1": _measure(QUORLOCK, 1),
        "redisson, N = 1": _measure(REDISSON, 1),
    }


def _measure(command: Sequence[str], nodes: int) -> dict[str, Any]:
    progress(f"a writer among readers: {command[-1]}, {nodes} nodes")
    with ExitStack() as stack:
        group = Group(stack, nodes)
        kinds = ["writer", *["reader"] * PROCESSES]
        processes = start_all(stack, [[*command, kind, *group.urls] for kind in kinds], {})
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
