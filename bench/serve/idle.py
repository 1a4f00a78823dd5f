"""The memory of a daemon with many idle connections."""

from __future__ import annotations

from contextlib import ExitStack

from daemons import Connection

from bench.group import Group
from bench.machine import allow_files
from bench.memory import resident
from bench.serve.daemon import start

IDLE = 10_000
"""How many idle connections the daemon has."""
OTHERS = 100
"""Open files of this process and of the daemon that are not connections of clients."""


def measure() -> dict[str, int]:
    """Returns the resident memory of a daemon in bytes, without and with idle connections."""
    allow_files(IDLE + OTHERS)
    with ExitStack() as stack:
        service = start(stack, Group(stack).urls)
        with Connection(service.path) as connection:
            # The first lock connects to the nodes.
            lease, _ = connection.lock("first")
            assert connection.ask("UNLOCK", lease) == 1
            before = resident(service.pid)
        for _ in range(IDLE):
            connection = stack.enter_context(Connection(service.path))
            assert connection.ask("PING") == "PONG"
        return {"connections": IDLE, "before": before, "with": resident(service.pid)}
