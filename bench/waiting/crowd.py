"""Hundreds of waiters in one process: what they cost the nodes while they wait, and then."""

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
"""Seconds until those who came last wait as the others do."""
NOISE = 1.0
"""Commands per second that are not held against anybody: a poll of every second or so more or less
falls into the time that is counted."""
SPANS = 8
"""For so many times `SECONDS` commands are counted: the pauses between tries are random, and are to
even out."""
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
    """Commands per second and node while all wait, and per acquisition when they may have it."""
    # It is not extended, so all that is sent meanwhile is sent by those who wait.
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
