"""Many leases that one process holds at once: memory, and CPU time of renewal."""

from __future__ import annotations

from contextlib import ExitStack
from statistics import fmean

from bench.holders import Holder
from bench.memory import resident
from bench.names import ASYNCIO, NODE, RUST
from bench.progress import progress
from bench.settings import pick

LEASES = pick([1000, 10_000, 50_000, 100_000], [100, 1000])
"""How many leases one process holds."""
TTL = 10.0
STAY = pick(20.0, 2.0)
"""Seconds for which leases are held: each is renewed every third of the ttl."""
IDLE = pick(10.0, 1.0)
"""Seconds for which the process is measured before it holds leases."""


def measure() -> list[dict[str, object]]:
    """Measures all sizes in Rust, and one size in the other languages."""
    one = min(10_000, LEASES[-1])
    plan = [(RUST, leases) for leases in LEASES] + [(ASYNCIO, one), (NODE, one)]
    return [_measure(name, leases) for name, leases in plan]


def _measure(name: str, leases: int) -> dict[str, object]:
    progress(f"{leases:,} held leases, {name}")
    with ExitStack() as stack:
        holder = Holder(stack, name)

        def memory() -> tuple[float, float]:
            servers = fmean(meter.memory() for meter in holder.group.meters)
            return resident(holder.pid), servers

        idle = holder.rest(IDLE)
        before = memory()
        seconds = holder.hold(leases, TTL)["seconds"]
        used = holder.rest(STAY)
        client, server = ((new - old) / leases for new, old in zip(memory(), before, strict=True))
        return {
            "name": name,
            "leases": leases,
            "seconds to acquire": seconds,
            "client bytes": client,
            "server bytes": server,
            "client cpu": (used["client"] - idle["client"]) / leases * 1e6,
            "server cpu": (used["server"] - idle["server"]) / leases * 1e6,
        }
