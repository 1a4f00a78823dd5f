"""What the contenders written in Python share.

A contender is a process with the nodes' URLs as arguments. For every line `{"cycles": n,
"concurrency": c}` on its standard input it runs n cycles on each of c keys, and answers with a
line `{"micros": [...], "seconds": s}`: the time of each cycle, and of all.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Awaitable, Callable


def serve(cycle: Callable[[int], None]) -> None:
    """Serves cycles one at a time; `cycle` gets the number of the key."""
    for line in sys.stdin:
        began = time.perf_counter()
        micros = []
        for _ in range(json.loads(line)["cycles"]):
            start = time.perf_counter()
            cycle(0)
            micros.append((time.perf_counter() - start) * 1e6)
        answer(micros, time.perf_counter() - began)


async def serve_async(cycle: Callable[[int], Awaitable[None]]) -> None:
    """Serves cycles, many at once."""
    import asyncio

    async def loop(key: int, cycles: int, micros: list[float]) -> None:
        for _ in range(cycles):
            start = time.perf_counter()
            await cycle(key)
            micros.append((time.perf_counter() - start) * 1e6)

    # Nothing else runs in this event loop between two requests, so it may block.
    for line in sys.stdin:
        request = json.loads(line)
        began = time.perf_counter()
        micros: list[float] = []
        keys = range(request["concurrency"])
        await asyncio.gather(*(loop(key, request["cycles"], micros) for key in keys))
        answer(micros, time.perf_counter() - began)


def answer(micros: list[float], seconds: float) -> None:
    print(json.dumps({"micros": micros, "seconds": seconds}), flush=True)
