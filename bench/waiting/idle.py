"""The CPU time of a process whose waiters wait in vain: another process keeps the locks."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from progress import progress
from servers import Servers
from settings import SECONDS
from tables import table
from workers import Process

import quorlock

WAITERS = [0, 100, 500]
SETTLE = 2.0
"""Seconds until the last waiters have reached the steady state of waiting."""
SPANS = 2
"""The CPU time is measured for `SECONDS` times this."""
_PYTHON = [sys.executable, "contenders/idle.py"]
PROGRAMS: dict[str, Sequence[str]] = {
    "Python, threads": [*_PYTHON, "threads"],
    "Python, asyncio": [*_PYTHON, "asyncio"],
    "Node.js": ["node", "contenders/idle.js"],
}


def measure(servers: Servers) -> dict[str, Any]:
    """Returns the CPU time per second, in % of a core, by program, locks and waiters."""
    results: dict[str, Any] = {name: {} for name in PROGRAMS}

    def rows() -> Iterator[list[str]]:
        for name, program in PROGRAMS.items():
            for locks in "one lock", "a lock each":
                is_one = locks == "one lock"
                loads = {n: _wait(name, program, servers, n, is_one) for n in WAITERS}
                results[name][locks] = loads
                yield [f"{name}, {locks}", *(f"{load:.1f} %" for load in loads.values())]

    columns = [f"{waiters} wait" for waiters in WAITERS]
    table("Waiters of a lock that stays held: their process's CPU, % of a core", columns, rows())
    return results


def _wait(name: str, program: Sequence[str], servers: Servers, waiters: int, is_one: bool) -> float:
    progress(f"{waiters} idle waiters, {name}")
    # Each measurement has locks of its own: a killed process stays in the queues for seconds.
    group = f"idle-{name.replace(' ', '')}-{waiters}-{is_one}"
    held = [f"{group}-{number}" for number in range(1 if is_one else waiters)]
    with ExitStack() as stack:
        holder = stack.enter_context(quorlock.Client(servers.urls, ttl=3600, auto_extend=False))
        for resource in held:
            holder.lock(resource).acquire()
        process = Process([*program, *servers.urls])
        stack.callback(process.kill)
        process.ask(wait=held * waiters if is_one else held)
        time.sleep(SETTLE)
        before, began = process.ask()["cpu"], time.monotonic()
        time.sleep(SPANS * SECONDS)
        used: float = process.ask()["cpu"] - before
        return used / (time.monotonic() - began) * 100
