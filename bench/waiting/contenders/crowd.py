"""Many waiters in one process, with asyncio; crowd.js is its twin in Node.js: `crowd.py URL...`.

It reads one JSON object per line on stdin and answers each with one JSON line on stdout:

    {"wait": n, "resource": r}  {}: n waiters have called acquire, and will hold for 1 ms
    {"finish": true}            {}: all of them have had the lock
"""

from __future__ import annotations

import asyncio
import json
import sys

import quorlock

HOLD = 0.001


async def main() -> None:
    async with quorlock.Client(sys.argv[1:], wait=None) as client:

        async def turn(resource: str) -> None:
            lease = await client.lock(resource).acquire_async()
            await asyncio.sleep(HOLD)
            await lease.release_async()

        await turn("crowd-warm")
        tasks: list[asyncio.Task[None]] = []
        while line := await asyncio.to_thread(sys.stdin.readline):
            match json.loads(line):
                case {"wait": int(count), "resource": str(resource)}:
                    tasks = [asyncio.create_task(turn(resource)) for _ in range(count)]
                    await asyncio.sleep(0)  # all have begun then
                case {"finish": True}:
                    await asyncio.gather(*tasks)
            print("{}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
