"""Waiters that wait in vain: `idle.py threads|asyncio URL...`. idle.js does the same in Node.js.

It reads one JSON object per line from stdin and answers each with one JSON line on stdout:

    {"wait": [r, ...]}  {}: one waiter for each resource has called acquire
    {}                  {"cpu": the CPU time of this process so far, in seconds}
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time

import quorlock


def begin_in_threads(client: quorlock.Client, resources: list[str]) -> None:
    for resource in resources:
        threading.Thread(target=client.lock(resource).acquire, daemon=True).start()


def begin_in_tasks(client: quorlock.Client, resources: list[str]) -> None:
    async def wait() -> None:
        await asyncio.gather(*(client.lock(resource).acquire_async() for resource in resources))

    threading.Thread(target=lambda: asyncio.run(wait()), daemon=True).start()


def main() -> None:
    _, kind, *urls = sys.argv
    begin = {"threads": begin_in_threads, "asyncio": begin_in_tasks}[kind]
    client = quorlock.Client(urls, wait=None)
    client.lock("idle-warm").acquire().release()
    for line in sys.stdin:
        if resources := json.loads(line).get("wait"):
            begin(client, resources)
        print(json.dumps({"cpu": time.process_time()}), flush=True)
    # The waiters never end.
    os._exit(0)


if __name__ == "__main__":
    main()
