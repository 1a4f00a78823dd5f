"""One writer among readers that come and go."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from contender import Process
from group import Group
from parameters import NODES, PROGRAMS
from peers.ecosystems import JAVA
from progress import progress
from shared.overtaking import Turn, figures
from shared.settings import HOLD, PATIENCE, PROCESSES, SECONDS, TASKS

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
