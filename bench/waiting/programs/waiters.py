"""Many waiters in one process: `waiters.py threads|asyncio URL...`. waiters.js does the same in
Node.js.

It reads one JSON object per line from stdin, and answers each with one JSON line on stdout: the CPU
time of this process so far, in seconds, as `{"cpu": seconds}`.

    {"wait": [r, ...]}  starts a waiter for each resource, which then holds the lock for 1 ms
    {"finish": true}    waits until all waiters have held and released their locks
    {}                  nothing else
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import quorlock

HOLD = 0.001


def in_threads(client: quorlock.Client) -> Callable[[str], Future[None]]:
    def turn(resource: str) -> None:
        with client.lock(resource):
            time.sleep(HOLD)

    threads = ThreadPoolExecutor(max_workers=1000)
    return lambda resource: threads.submit(turn, resource)


def in_tasks(client: quorlock.Client) -> Callable[[str], Future[None]]:
    async def turn(resource: str) -> None:
        async with client.lock(resource):
            await asyncio.sleep(HOLD)

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return lambda resource: asyncio.run_coroutine_threadsafe(turn(resource), loop)


def main() -> None:
    _, kind, *urls = sys.argv
    client = quorlock.Client(urls, wait=None)
    client.lock(f"{kind}-warm").acquire().release()
    start = {"threads": in_threads, "asyncio": in_tasks}[kind](client)
    turns: list[Future[None]] = []
    for line in sys.stdin:
        request = json.loads(line)
        turns += map(start, request.get("wait", []))
        if request.get("finish"):
            while turns:
                turns.pop().result()
        print(json.dumps({"cpu": time.process_time()}), flush=True)
    # Some waiters may never end.
    os._exit(0)


if __name__ == "__main__":
    main()
