"""The cost of a semaphore's cycle beside an exclusive lock's, one cycle at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bench.contender import Contender
from bench.contenders import python, rust
from bench.peers import java, node
from bench.settings import NODES, pick
from bench.turns import compare

ROUNDS = pick(16, 1)
KINDS = ("lock", "10", "1000")
"""What a cycle acquires: an exclusive lock, or a permit of a semaphore with this limit."""

Libraries = Mapping[str, Callable[[str, str], Contender]]
"""For each library, a function that returns a contender of a name and a kind."""

QUORLOCK: Libraries = {
    "quorlock Rust": lambda name, kind: rust(name, "async", "rust-semaphore", kind),
    "quorlock Python": lambda name, kind: python(name, "sync", "semaphore.py", kind),
}
REDIS_SEMAPHORE: Libraries = {
    "redis-semaphore": lambda name, kind: node(name, _program("redis-semaphore", kind))
}
REDISSON: Libraries = {"redisson": lambda name, kind: java(name, _program("redisson", kind))}


def _program(library: str, kind: str) -> str:
    return library if kind == "lock" else f"{library}-permits {kind}"


def measure() -> list[dict[str, Any]]:
    """Returns the summaries of each library on one and on several nodes, by kind."""
    return [
        *_measure(NODES, {**QUORLOCK, **REDIS_SEMAPHORE}),
        *_measure(1, {**QUORLOCK, **REDISSON}),
    ]


def _measure(nodes: int, libraries: Libraries) -> list[dict[str, Any]]:
    contenders = [
        contender(f"{library} {kind}", kind)
        for library, contender in libraries.items()
        for kind in KINDS
    ]
    found = compare(f"one cycle at a time, N = {nodes}", contenders, nodes, count=ROUNDS)
    return [
        {"library": library, "nodes": nodes} | {kind: found[f"{library} {kind}"] for kind in KINDS}
        for library in libraries
    ]
