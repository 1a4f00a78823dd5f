"""Many waiters in one process, with asyncio: `crowd.py URL...`. crowd.js does the same in Node.js.

It reads one JSON object per line from stdin and answers each with one JSON line on stdout:

    {"wait": n, "resource": r}  {}: n waiters have called acquire; each will hold the lock for 1 ms
    {"finish": true}            {}: all of them have held and released the lock
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
                    await asyncio.sleep(0)  # lets all tasks start
                case {"finish": True}:
                    await asyncio.gather(*tasks)
            print("{}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
