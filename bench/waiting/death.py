"""A killed holder: how long after its ttl the next client gets the lock."""

from __future__ import annotations

import random
import statistics
import sys
import threading
import time
from typing import Any

from progress import progress
from servers import Servers
from settings import DEATH_GOAL, ROUNDS
from tables import goal, table
from workers import Process

import quorlock

TTL = 1.0
DEATHS = min(20, 10 * ROUNDS)


def measure(servers: Servers) -> dict[str, Any]:
    beyond = []
    with quorlock.Client(servers.urls, wait=None) as client:
        client.lock("death-warm").acquire().release()
        for number in range(DEATHS):
            progress(f"a holder dies, {number + 1} of {DEATHS}")
            beyond.append(_die(servers, client, f"death-{number}"))
    median, most = statistics.median(beyond), max(beyond)
    table(
        f"A holder that dies, ttl {TTL:g} s: the next one has the lock beyond the ttl",
        ["times", "median", "most", f"at most {DEATH_GOAL:g} ms"],
        [["quorlock", str(DEATHS), f"{median:.0f} ms", f"{most:.0f} ms", goal(most <= DEATH_GOAL)]],
    )
    return {"beyond the ttl, ms": beyond, "median": median, "most": most}


def _die(servers: Servers, client: quorlock.Client, resource: str) -> float:
    """Returns the milliseconds from the holder's call of acquire until the waiter has the lock,
    minus the ttl."""
    acquired: list[int] = []

    def wait() -> None:
        lease = client.lock(resource).acquire()
        acquired.append(time.monotonic_ns())
        lease.release()

    holder = Process([sys.executable, "contenders/holder.py", resource, str(TTL), *servers.urls])
    try:
        holder.receive()
        called: int = holder.ask(acquire=True)["called"]
        waiter = threading.Thread(target=wait)
        waiter.start()
        time.sleep(random.uniform(0.0, TTL / 2))
    finally:
        holder.kill()
    waiter.join()
    return (acquired[0] - called) / 1e6 - TTL * 1e3
