"""Holds leases with asyncio. `bench/holders.py` describes the protocol."""

import asyncio
import gc
import json
import sys
import time

import quorlock

BATCH = 100


async def acquire(client: quorlock.Client, count: int, ttl: float) -> list[quorlock.Lease]:
    leases: list[quorlock.Lease] = []
    for first in range(0, count, BATCH):
        numbers = range(first, min(count, first + BATCH))
        locks = [client.lock(f"Python-held-{number}", ttl=ttl) for number in numbers]
        leases += await asyncio.gather(*(lock.acquire_async() for lock in locks))
    return leases


async def main() -> None:
    async with quorlock.Client(sys.argv[1:]) as client:
        # Allocates what a client needs only once, so that it is not counted for the leases.
        for lease in await acquire(client, BATCH, 60.0):
            await lease.release_async()
        leases: list[quorlock.Lease] = []
        for line in sys.stdin:
            request = json.loads(line)
            answer: dict[str, object] = {}
            if "hold" in request:
                began = time.perf_counter()
                leases = await acquire(client, request["hold"], request["ttl"])
                answer["seconds"] = time.perf_counter() - began
                gc.collect()
            elif "rest" in request:
                began, cpu = time.perf_counter(), time.process_time()
                await asyncio.sleep(request["rest"])
                answer["seconds"] = time.perf_counter() - began
                answer["cpu"] = time.process_time() - cpu
                answer["valid"] = all(lease.valid for lease in leases)
            print(json.dumps(answer), flush=True)


asyncio.run(main())
