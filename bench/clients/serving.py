"""The protocol of contenders in Python: reads requests and prints times. See `bench/README.md`."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

Micros = list[float]


def serve(name: str, lock: Callable[[str], Callable[[], object]]) -> None:
    """Runs cycles in threads. `lock` returns the cycle of a key."""

    def loop(cycle: Callable[[], object], cycles: int) -> Micros:
        micros = []
        for _ in range(cycles):
            start = time.perf_counter()
            cycle()
            micros.append((time.perf_counter() - start) * 1e6)
        return micros

    # Threads are reused between requests, as in a server.
    with ThreadPoolExecutor(max_workers=1000) as threads:
        for cycles, keys in _requests(name):
            locks = [lock(key) for key in keys]
            with Answer() as answer:
                if len(locks) == 1:
                    answer.micros = loop(locks[0], cycles)
                else:
                    loops = threads.map(loop, locks, [cycles] * len(locks))
                    answer.micros = [each for micros in loops for each in micros]


async def serve_async(name: str, lock: Callable[[str], Callable[[], Awaitable[object]]]) -> None:
    """Runs cycles in tasks. `lock` returns the cycle of a key."""

    async def loop(cycle: Callable[[], Awaitable[object]], cycles: int) -> Micros:
        micros = []
        for _ in range(cycles):
            start = time.perf_counter()
            await cycle()
            micros.append((time.perf_counter() - start) * 1e6)
        return micros

    # Reading blocks the event loop, which is idle between two requests.
    for cycles, keys in _requests(name):
        locks = [lock(key) for key in keys]
        with Answer() as answer:
            loops = [asyncio.create_task(loop(each, cycles)) for each in locks]
            # Wait for all loops, also when one fails: interrupting them would leave keys behind.
            await asyncio.wait(loops)
            answer.micros = [each for done in loops for each in done.result()]


def _requests(name: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the number of cycles and the keys of each request."""
    for line in sys.stdin:
        request = json.loads(line)
        yield request["cycles"], [f"{name}-{number}" for number in range(request["concurrency"])]


class Answer:
    """Measures a `with` block and prints the answer to a request: the times, or the error."""

    def __enter__(self) -> Answer:
        self.micros: Micros = []
        self._began, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        seconds, cpu = time.perf_counter() - self._began, time.process_time() - self._cpu
        answer: dict[str, object] = {"micros": self.micros, "seconds": seconds, "cpu": cpu}
        if error is not None:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
        return isinstance(error, Exception)
