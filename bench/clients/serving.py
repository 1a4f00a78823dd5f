"""The protocol of contenders in Python: reads requests and prints times. See `bench/README.md`."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

Micros = list[float]


def serve(name: str, cycle: Callable[[str], None]) -> None:
    """Runs cycles in threads. `cycle` is called with the key."""

    def loop(cycles: int, key: int) -> Micros:
        micros = []
        for _ in range(cycles):
            start = time.perf_counter()
            cycle(f"{name}-{key}")
            micros.append((time.perf_counter() - start) * 1e6)
        return micros

    # Threads are reused between requests, as in a server.
    with ThreadPoolExecutor(max_workers=1000) as threads:
        for cycles, concurrency in requests():
            with Answer() as answer:
                if concurrency == 1:
                    answer.micros = loop(cycles, 0)
                else:
                    loops = threads.map(lambda key, n=cycles: loop(n, key), range(concurrency))
                    answer.micros = [each for micros in loops for each in micros]


async def serve_async(name: str, cycle: Callable[[str], Awaitable[None]]) -> None:
    """Runs cycles in tasks. `cycle` is called with the key."""

    async def loop(cycles: int, key: int) -> Micros:
        micros = []
        for _ in range(cycles):
            start = time.perf_counter()
            await cycle(f"{name}-{key}")
            micros.append((time.perf_counter() - start) * 1e6)
        return micros

    # Reading blocks the event loop, which is idle between two requests.
    for cycles, concurrency in requests():
        with Answer() as answer:
            loops = await asyncio.gather(*(loop(cycles, key) for key in range(concurrency)))
            answer.micros = [each for micros in loops for each in micros]


def requests() -> Iterator[tuple[int, int]]:
    for line in sys.stdin:
        request = json.loads(line)
        yield request["cycles"], request["concurrency"]


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
