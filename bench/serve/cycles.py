"""The cost of a cycle through the socket beside cycles in process, and other libraries."""

from __future__ import annotations

from contextlib import ExitStack

from bench.contender import Contender
from bench.contenders import OWN
from bench.group import Group
from bench.names import ASYNCIO, FAIL_FAST, REDISSON, REDSYNC, RUST, RUST_ASYNC, SERVE
from bench.peers import LIBRARIES
from bench.peers.ecosystems import GO
from bench.serve import daemon
from bench.serve.daemon import Daemon
from bench.serve.goals import IN_FLIGHT
from bench.settings import pick
from bench.turns import Summary, rounds, start, summaries

ROUNDS = {1: pick(32, 2), IN_FLIGHT: pick(8, 1)}
"""How many turns each contender has, by the number of cycles in flight."""


def contenders(service: Daemon) -> list[Contender]:
    command = [*map(str, GO.program), "quorlock-serve"]
    socket = {"QUORLOCK_SOCKET": str(service.path)}
    return [
        *(OWN[name] for name in (RUST, RUST_ASYNC, ASYNCIO)),
        Contender(SERVE, "quorlock", "Go", "async", command, socket),
        *(each.contender() for each in LIBRARIES if each.name in (REDSYNC, FAIL_FAST, REDISSON)),
    ]


def measure() -> dict[str, dict[str, Summary]]:
    """Returns the summaries of all contenders, by the number of cycles in flight."""
    return {str(concurrency): _measure(concurrency) for concurrency in ROUNDS}


def _measure(concurrency: int) -> dict[str, Summary]:
    with ExitStack() as stack:
        group = Group(stack)
        service = daemon.start(stack, group.urls)
        lanes = start(stack, contenders(service), group, concurrency=concurrency)
        rounds(f"{concurrency} cycles in flight", lanes, ROUNDS[concurrency])
        return summaries(lanes)
