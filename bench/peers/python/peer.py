"""Contenders from PyPI: `peer.py NAME URL...`. ../README.md describes the protocol."""

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
    """Runs each cycle `count` times in its own thread. Returns the times in microseconds."""

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
    """Runs each cycle `count` times in its own task. Returns the times in microseconds."""

    async def loop(cycle: awaited.Cycle) -> Micros:
        micros = []
        for _ in range(count):
            start = time.perf_counter()
            await cycle()
            micros.append((time.perf_counter() - start) * 1e6)
        return micros

    # Wait for all loops, also when one fails: interrupting them would leave keys on the nodes.
    ended = await asyncio.gather(*map(loop, cycles), return_exceptions=True)
    results = []
    for result in ended:
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results


def requests(name: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the requests: the number of cycles, and the keys."""
    for line in sys.stdin:
        request = json.loads(line)
        yield request["cycles"], [f"{name}-{number}" for number in range(request["concurrency"])]


class Stopwatch:
    """Measures the time and the CPU time of the process, since it was created."""

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
    # Reading blocks the event loop, which is idle between two requests.
    for count, keys in requests(name):
        cycles = [lock(key) for key in keys]
        watch = Stopwatch()
        try:
            watch.answer(await run_awaited(cycles, count))
        except Exception as error:
            fail(error)


def main() -> None:
    _, name, *urls = sys.argv
    logging.disable()  # libraries log tracebacks about frozen nodes
    if name in blocking.LIBRARIES:
        serve_blocking(name, blocking.LIBRARIES[name](urls))
    else:
        asyncio.run(serve_awaited(name, urls))


if __name__ == "__main__":
    main()
    os._exit(0)  # do not wait for threads that wait for a frozen node
