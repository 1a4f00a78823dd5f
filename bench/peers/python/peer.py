"""The peers from PyPI: `peer.py NAME URL...`, a contender as ../README.md tells."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import awaited
import blocking

Micros = list[float]


def run_blocking(cycles: list[blocking.Cycle], count: int) -> list[Micros]:
    """Runs each cycle so many times, each in a thread of its own."""

    def loop(cycle: blocking.Cycle) -> Micros:
        micros = []
        for _ in range(count):
            start = time.perf_counter()
            cycle()
            micros.append((time.perf_counter() - start) * 1e6)
        return micros

    with ThreadPoolExecutor(len(cycles)) as threads:
        return list(threads.map(loop, cycles))


async def run_awaited(cycles: list[awaited.Cycle], count: int) -> list[Micros]:
    """Runs each cycle so many times, each in a task of its own."""

    async def loop(cycle: awaited.Cycle) -> Micros:
        micros = []
        for _ in range(count):
            start = time.perf_counter()
            await cycle()
            micros.append((time.perf_counter() - start) * 1e6)
        return micros

    # All are waited for, also when one fails: what is not cut short leaves no keys behind.
    ended = await asyncio.gather(*map(loop, cycles), return_exceptions=True)
    results = []
    for result in ended:
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results


def requests(name: str) -> Iterator[tuple[int, list[str]]]:
    """What is asked for: a number of cycles, and the keys."""
    for line in sys.stdin:
        request = json.loads(line)
        yield request["cycles"], [f"{name}-{number}" for number in range(request["concurrency"])]


class Stopwatch:
    """Takes the time, and the CPU time of the whole process, from its making on."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._began = time.perf_counter()

    def answer(self, loops: list[Micros]) -> None:
        seconds = time.perf_counter() - self._began
        cpu = time.process_time() - self._cpu
        micros = [each for loop in loops for each in loop]
        print(json.dumps({"micros": micros, "seconds": seconds, "cpu": cpu}), flush=True)


def fail(error: Exception) -> None:
    print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)


def serve_blocking(name: str, lock: Callable[[str], blocking.Cycle]) -> None:
    for count, keys in requests(name):
        cycles = [lock(key) for key in keys]
        watch = Stopwatch()
        try:
            watch.answer(run_blocking(cycles, count))
        except Exception as error:
            fail(error)


async def serve_awaited(name: str, urls: list[str]) -> None:
    lock = awaited.LIBRARIES[name](urls)
    # Nothing else runs in this event loop between two requests, so it may block.
    for count, keys in requests(name):
        cycles = [lock(key) for key in keys]
        watch = Stopwatch()
        try:
            watch.answer(await run_awaited(cycles, count))
        except Exception as error:
            fail(error)


def main() -> None:
    _, name, *urls = sys.argv
    logging.disable()  # of a frozen node libraries print whole tracebacks
    if name in blocking.LIBRARIES:
        serve_blocking(name, blocking.LIBRARIES[name](urls))
    else:
        asyncio.run(serve_awaited(name, urls))


if __name__ == "__main__":
    main()
    os._exit(0)  # threads that still wait for a frozen node would be waited for
