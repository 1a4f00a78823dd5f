"""The CPU time of a process whose waiters wait in vain: `python bench/waiting/idle.py`.

Another process holds the locks for longer than the measurement takes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    ROOT = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests")]

from progress import progress
from servers import Servers
from settings import HERE, NODES, SECONDS
from tables import table
from workers import Process

import quorlock

WAITERS = [0, 100, 500]
SETTLE = 2.0
"""Seconds until the last waiters have reached the steady state of waiting."""
SPANS = 4
"""The CPU time is measured for `SECONDS` times this."""
_PYTHON = [sys.executable, "contenders/idle.py"]
PROGRAMS: dict[str, Sequence[str]] = {
    "Python, threads": [*_PYTHON, "threads"],
    "Python, asyncio": [*_PYTHON, "asyncio"],
    "Node.js": ["node", "contenders/idle.js"],
}


def measure(servers: Servers) -> dict[str, Any]:
    """Returns the CPU time per second, in % of a core, by program, resources and waiters."""
    held = [f"idle-{number}" for number in range(max(WAITERS))]
    results: dict[str, Any] = {name: {} for name in PROGRAMS}

    def rows() -> Iterator[list[str]]:
        for name, program in PROGRAMS.items():
            for locks, resources in ("one lock", held[:1] * len(held)), ("a lock each", held):
                loads = {n: _wait(name, program, servers, resources[:n]) for n in WAITERS}
                results[name][locks] = loads
                yield [f"{name}, {locks}", *(f"{load:.1f} %" for load in loads.values())]

    with quorlock.Client(servers.urls, ttl=3600, auto_extend=False) as client:
        leases = [client.lock(resource).acquire() for resource in held]
        columns = [f"{waiters} wait" for waiters in WAITERS]
        table("Waiters of a lock that stays held: their process's CPU, % of a core", columns, rows())
        for lease in leases:
            lease.release()
    return results


def _wait(name: str, program: Sequence[str], servers: Servers, resources: list[str]) -> float:
    progress(f"{len(resources)} idle waiters, {name}")
    process = Process([*program, *servers.urls])
    try:
        process.ask(wait=resources)
        time.sleep(SETTLE)
        before, began = process.ask()["cpu"], time.monotonic()
        time.sleep(SPANS * SECONDS)
        used: float = process.ask()["cpu"] - before
        return used / (time.monotonic() - began) * 100
    finally:
        process.kill()


if __name__ == "__main__":
    with Servers(NODES) as servers:
        measure(servers)
