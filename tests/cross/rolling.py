"""The Python worker of test_rolling.py; rolling.js does the same.

It holds its own lock all the time, tries to acquire the locks of the other workers, and competes
with the other workers for one more lock. It writes events to its history file, one JSON object per
line; times are nanoseconds of CLOCK_MONOTONIC. It exits when its stdin ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import quorlock

settings = json.loads(sys.argv[1])
client = quorlock.Client(
    settings["urls"],
    ttl=settings["ttl"] / 1000,
    restart_guard=settings["guard"] / 1000,
    # Long, so that a loaded machine does not cause timeouts.
    node_timeout=1,
    retry_delay=(0.002, 0.02),
    wait=30,
)


def record(**entry: Any) -> None:
    with Path(settings["history"]).open("a") as history:
        history.write(json.dumps(entry) + "\n")


async def hold(over: asyncio.Event) -> None:
    lease = await client.lock(settings["name"]).acquire_async()
    record(held=lease.token, at=time.monotonic_ns())
    await over.wait()
    at = time.monotonic_ns()
    # `kept` is False if the lease was lost before this release.
    record(kept=lease.valid and await lease.release_async(), at=at)


async def intrude(over: asyncio.Event) -> None:
    while not over.is_set():
        for name in settings["others"]:
            try:
                lease = await client.lock(name, wait=0).acquire_async()
            except (quorlock.LockTimeoutError, quorlock.QuorumError):
                continue
            record(intruded=name, at=time.monotonic_ns())
            await lease.release_async()
        await asyncio.sleep(0.02)


async def take_turns(over: asyncio.Event) -> None:
    while not over.is_set():
        lease = None
        try:
            async with client.lock("turns") as lease:
                begun = time.monotonic_ns()
                await asyncio.sleep(0.003)
                lease.check()
                record(begun=begun, ended=time.monotonic_ns(), fence=lease.fence)
        except quorlock.LeaseLostError:
            assert lease
            record(lost=lease.fence)
        await asyncio.sleep(0.001)


async def main() -> None:
    over = asyncio.Event()
    holding = asyncio.create_task(hold(over))
    loop = asyncio.get_running_loop()
    loop.run_in_executor(None, sys.stdin.read).add_done_callback(lambda _: over.set())
    async with asyncio.TaskGroup() as group:
        group.create_task(intrude(over))
        group.create_task(take_turns(over))
    await holding


asyncio.run(main())
