"""Hundreds of waiters in one process: the commands that they send during and after the wait."""

from __future__ import annotations

import sys
import time
from typing import Any

import counting
from progress import progress
from servers import Servers
from settings import COMMANDS_GOAL, HERE, SECONDS
from tables import goal, table
from workers import Process

import quorlock

MANY = 500
SETTLE = 1.0
"""Seconds until the last waiters have reached the steady state of waiting."""
NOISE = 1.0
"""The tolerance in commands per second: about one more or less falls into the measured time."""
SPANS = 8
"""Commands are counted for `SECONDS` times this, so that the random retry delays average out."""
COLUMNS = [
    "per second, 1 waits",
    f"{MANY} wait",
    "no more",
    f"per acquisition, {MANY} had waited",
    f"at most {COMMANDS_GOAL:g}",
]
PROGRAMS = {
    "Python, asyncio": [sys.executable, "contenders/crowd.py"],
    "Node.js": ["node", str(HERE / "contenders" / "crowd.js")],
}


def measure(servers: Servers) -> dict[str, Any]:
    results: dict[str, Any] = {}
    rows = []
    for language, program in PROGRAMS.items():
        rates, turns = {}, {}
        process = Process([*program, *servers.urls])
        try:
            for waiters in (1, MANY):
                progress(f"{waiters} waiters in one process, {language}")
                resource = f"crowd-{language.partition(',')[0]}-{waiters}"
                rates[waiters], turns[waiters] = _wait(process, servers, resource, waiters)
            assert process.process.stdin
            process.process.stdin.close()
            process.process.wait(30)
        finally:
            process.kill()
        results[language] = {"per node and second": rates, "per node and acquisition": turns}
        rows.append(
            [
                language,
                f"{rates[1]:.1f}",
                f"{rates[MANY]:.1f}",
                goal(rates[MANY] <= rates[1] + NOISE),
                f"{turns[MANY]:.1f}",
                goal(turns[MANY] <= COMMANDS_GOAL),
            ]
        )
    table(
        "Waiters in one process: commands per node",
        COLUMNS,
        rows,
    )
    return results


def _wait(process: Process, servers: Servers, resource: str, waiters: int) -> tuple[float, float]:
    """Returns the commands per second and node while all wait, and per acquisition afterwards."""
    # The lease is not renewed, so only waiters send commands.
    with quorlock.Client(servers.urls, ttl=60 + 2 * SPANS * SECONDS, auto_extend=False) as client:
        lease = client.lock(resource).acquire()
        process.ask(wait=waiters, resource=resource)
        time.sleep(SETTLE)
        before, began = counting.snapshot(list(servers)), time.monotonic()
        time.sleep(SPANS * SECONDS)
        rate = counting.per_node(before, list(servers)) / (time.monotonic() - began)
        before = counting.snapshot(list(servers))
        lease.release()
        process.ask(finish=True)
        return rate, counting.per_node(before, list(servers)) / waiters
