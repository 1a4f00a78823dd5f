"""The cost of a cycle through the socket beside cycles in process, and other libraries."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Any

from contender import Contender
from figures import ASYNCIO, RUST, RUST_ASYNC
from group import Group
from parameters import HERE, PROGRAMS
from peers.ecosystems import GO, JAVA
from serve.service import Service, start
from serve.settings import (
    FAIL_FAST,
    IN_FLIGHT,
    REDISSON,
    REDSYNC,
    ROUNDS,
    ROUNDS_IN_FLIGHT,
    SERVE,
)
from turns import Lane, rounds
from turns import start as start_lanes

_PYTHON = f"{HERE}/clients/python_async.py"


def contenders(service: Service) -> list[Contender]:
    go, java = [*map(str, GO.program)], [*map(str, JAVA.program)]
    socket = {"QUORLOCK_SOCKET": str(service.path)}
    return [
        Contender(RUST, "quorlock", "Rust", "sync", [f"{PROGRAMS}/rust-sync"]),
        Contender(RUST_ASYNC, "quorlock", "Rust", "async", [f"{PROGRAMS}/rust-async"]),
        Contender(ASYNCIO, "quorlock", "Python", "async", [sys.executable, _PYTHON]),
        Contender(SERVE, "quorlock", "Go", "async", [*go, "quorlock-serve"], socket),
        Contender(REDSYNC, "peer", "Go", "async", [*go, REDSYNC]),
        Contender(FAIL_FAST, "peer", "Go", "async", [*go, FAIL_FAST]),
        Contender(REDISSON, "peer", "Java", "sync", [*java, REDISSON]),
    ]


def measure() -> dict[str, dict[str, Any]]:
    """Returns the summaries of all contenders, by the number of cycles in flight."""
    return {"1": _measure(1, ROUNDS), str(IN_FLIGHT): _measure(IN_FLIGHT, ROUNDS_IN_FLIGHT)}


def _measure(concurrency: int, count: int) -> dict[str, Any]:
    with ExitStack() as stack:
        group = Group(stack)
        service = start(stack, group.urls)
        lanes = start_lanes(stack, contenders(service), group, concurrency=concurrency)
        rounds(f"{concurrency} cycles in flight", lanes, count)
        return {lane.contender.name: _summary(lane) for lane in lanes}


def _summary(lane: Lane) -> dict[str, Any]:
    return lane.summary() | {"language": lane.contender.language}
