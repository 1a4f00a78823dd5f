"""New resources one after another: a throughput and a memory that do not change with time.

The program `rust-distinct` is a contender (see `bench/README.md`), except that each cycle uses a
resource of its own.
"""

from __future__ import annotations

from contextlib import ExitStack
from time import monotonic

from bench.contender import Process
from bench.group import Group
from bench.memory import resident
from bench.progress import progress
from bench.settings import PATIENCE, PROGRAMS, pick

DISTINCT = pick(2_000_000, 20_000)
"""How many resources are locked one after another."""
CONCURRENCY = 64
SAMPLES = 100


def measure() -> list[dict[str, float]]:
    """Returns the samples of one run, with the totals so far."""
    cycles = max(1, DISTINCT // SAMPLES // CONCURRENCY)
    each = cycles * CONCURRENCY
    request = {"cycles": cycles, "concurrency": CONCURRENCY}
    with ExitStack() as stack:
        group = Group(stack)
        process = Process([f"{PROGRAMS}/rust-distinct", *group.urls], {})
        stack.callback(process.close)
        process.ask(request, PATIENCE)
        began, cpu = monotonic(), group.cpu()
        samples = []
        for number in range(SAMPLES):
            progress(f"{number * each:,} of {DISTINCT:,} distinct resources")
            answer = process.ask(request, PATIENCE)
            before, cpu = cpu, group.cpu()
            samples.append(
                {
                    "resources": (number + 2) * each,
                    "elapsed": monotonic() - began,
                    "rate": each / answer["seconds"],
                    "server cpu": (cpu - before) / each * 1e6,
                    "client bytes": resident(process.pid),
                    "server bytes": max(meter.memory() for meter in group.meters),
                    "keys": max(meter.keys() for meter in group.meters),
                }
            )
        return samples
