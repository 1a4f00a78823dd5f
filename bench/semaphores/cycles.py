"""The cost of a semaphore's cycle beside an exclusive lock's, one cycle at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from contender import Contender
from group import Group
from parameters import HERE, NODES, PROGRAMS
from peers.ecosystems import JAVA, NODE
from semaphores.settings import CYCLE_ROUNDS, LIMITS
from turns import rounds, start

LOCK = "lock"
KINDS = (LOCK, *map(str, LIMITS))
"""What a cycle acquires: an exclusive lock, or a permit of a semaphore with this limit."""

Library = Callable[[str], Contender]


def rust(kind: str) -> Contender:
    command = [f"{PROGRAMS}/rust-semaphore", kind]
    return Contender(f"quorlock Rust {kind}", "quorlock", "Rust", "async", command)


def python(kind: str) -> Contender:
    command = [sys.executable, f"{HERE}/clients/semaphore.py", kind]
    return Contender(f"quorlock Python {kind}", "quorlock", "Python", "sync", command)


def redis_semaphore(kind: str) -> Contender:
    name = "redis-semaphore" if kind == LOCK else f"redis-semaphore-permits {kind}"
    command = [*map(str, NODE.program), name]
    environment = NODE.environment
    return Contender(f"redis-semaphore {kind}", "peer", "Node.js", "async", command, environment)


def redisson(kind: str) -> Contender:
    name = "redisson" if kind == LOCK else f"redisson-permits {kind}"
    command = [*map(str, JAVA.program), name]
    return Contender(f"redisson {kind}", "peer", "Java", "sync", command)


def measure() -> list[dict[str, Any]]:
    """Returns the summaries of each library on one and on several nodes, by kind."""
    quorlock: dict[str, Library] = {"quorlock Rust": rust, "quorlock Python": python}
    return [
        *_measure(NODES, quorlock | {"redis-semaphore": redis_semaphore}),
        *_measure(1, quorlock | {"redisson": redisson}),
    ]


def _measure(nodes: int, libraries: dict[str, Library]) -> list[dict[str, Any]]:
    with ExitStack() as stack:
        contenders = [library(kind) for library in libraries.values() for kind in KINDS]
        lanes = start(stack, contenders, Group(stack, nodes))
        rounds(f"one cycle at a time, {nodes} nodes", lanes, CYCLE_ROUNDS)
        summaries = {lane.contender.name: lane.summary() for lane in lanes}
        return [
            {"library": name, "nodes": nodes}
            | {kind: summaries[library(kind).name] for kind in KINDS}
            for name, library in libraries.items()
        ]
