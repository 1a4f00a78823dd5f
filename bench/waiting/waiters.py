"""Waiters in one process: the commands that they send, their CPU time, and a holder that dies."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any

import quorlock
from bench.contender import Process
from bench.progress import progress
from bench.settings import PATIENCE
from bench.waiting import counting
from bench.waiting.contenders import PROGRAMS
from bench.waiting.handing import ROUNDS, SECONDS

_PYTHON = [sys.executable, f"{PROGRAMS}/waiters.py"]
WAITERS: dict[str, Sequence[str]] = {
    "Python, threads": [*_PYTHON, "threads"],
    "Python, asyncio": [*_PYTHON, "asyncio"],
    "Node.js": ["node", f"{PROGRAMS}/waiters.js"],
}
CROWDS = ["Python, asyncio", "Node.js"]
MANY = 500
SPANS = 8
"""Commands are counted for `SECONDS` times this, so that the random retry delays average out."""
SETTLED = 1.0
"""Seconds until the last waiters have reached the steady state of waiting."""

IDLE_WAITERS = [0, 100, MANY]
IDLE_SPANS = 2
"""The CPU time is measured for `SECONDS` times this."""

TTL = 1.0
DEATHS = min(20, 10 * ROUNDS)


def commands() -> dict[str, Any]:
    """Returns the commands per node: each second while waiters wait, and for each acquisition
    afterwards."""
    results: dict[str, Any] = {}
    for language in CROWDS:
        with ExitStack() as stack:
            process = Process([*WAITERS[language], *counting.group().urls], {})
            stack.callback(process.close)
            one, many = (_commands(process, language, waiters) for waiters in (1, MANY))
        results[language] = {
            "one per second": one[0],
            "many per second": many[0],
            "one per acquisition": one[1],
            "many per acquisition": many[1],
        }
    return results


def _commands(process: Process, language: str, waiters: int) -> tuple[float, float]:
    progress(f"{waiters} waiters in one process, {language}")
    resource = f"crowd-{language.partition(',')[0]}-{waiters}"
    servers, urls = counting.nodes(), counting.group().urls
    # The lease is not renewed, so only waiters send commands.
    with quorlock.Client(urls, ttl=60 + 2 * SPANS * SECONDS, auto_extend=False) as client:
        lease = client.lock(resource).acquire()
        process.ask({"wait": [resource] * waiters}, PATIENCE)
        time.sleep(SETTLED)
        before, began = counting.snapshot(servers), time.monotonic()
        time.sleep(SPANS * SECONDS)
        rate = counting.per_node(before) / (time.monotonic() - began)
        before = counting.snapshot(servers)
        lease.release()
        process.ask({"finish": True}, PATIENCE)
        return rate, counting.per_node(before) / waiters


def idle() -> dict[str, dict[str, dict[str, float]]]:
    """Returns the CPU time of a process whose waiters wait in vain, in % of a core, by program,
    locks and waiters."""
    return {
        name: {
            locks: {str(waiters): _idle(name, waiters, locks) for waiters in IDLE_WAITERS}
            for locks in ("one lock", "a lock each")
        }
        for name in WAITERS
    }


def _idle(name: str, waiters: int, locks: str) -> float:
    progress(f"{waiters} idle waiters, {name}")
    urls, is_one = counting.group().urls, locks == "one lock"
    # Each measurement has locks of its own: a killed process stays in the queues for seconds.
    group = f"idle-{name.replace(' ', '')}-{waiters}-{is_one}"
    held = [f"{group}-{number}" for number in range(1 if is_one else waiters)]
    with ExitStack() as stack:
        holder = stack.enter_context(quorlock.Client(urls, ttl=3600, auto_extend=False))
        leases = [holder.lock(resource).acquire() for resource in held]
        process = Process([*WAITERS[name], *urls], {})
        stack.callback(process.kill)
        process.ask({"wait": held * waiters if is_one else held}, PATIENCE)
        time.sleep(2 * SETTLED)
        before, began = process.ask({})["cpu"], time.monotonic()
        time.sleep(IDLE_SPANS * SECONDS)
        used: float = process.ask({})["cpu"] - before
        seconds = time.monotonic() - began
        assert all(lease.valid for lease in leases), "a waiter may have got a lock"
        return used / seconds * 100


def death() -> dict[str, Any]:
    """Returns the milliseconds after the ttl of a killed holder until a waiter has the lock."""
    beyond = []
    with quorlock.Client(counting.group().urls, wait=None) as client:
        client.lock("death-warm").acquire().release()
        for number in range(DEATHS):
            progress(f"a holder dies, {number + 1} of {DEATHS}")
            beyond.append(_die(client, f"death-{number}"))
    return {"times": len(beyond), "median": median(beyond), "most": max(beyond)}


def _die(client: quorlock.Client, resource: str) -> float:
    acquired: list[int] = []

    def wait() -> None:
        lease = client.lock(resource).acquire()
        acquired.append(time.monotonic_ns())
        lease.release()

    program = [sys.executable, f"{PROGRAMS}/holder.py", resource, str(TTL)]
    holder = Process([*program, *counting.group().urls], {})
    try:
        holder.receive()
        called: int = holder.ask({"acquire": True})["called"]
        waiter = threading.Thread(target=wait)
        waiter.start()
        time.sleep(random.uniform(0.0, TTL / 2))
    finally:
        holder.kill()
    waiter.join()
    return (acquired[0] - called) / 1e6 - TTL * 1e3
