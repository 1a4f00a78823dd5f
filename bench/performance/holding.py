"""The cost of holding leases: memory, CPU and requests."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from bench.holders import HOLDERS, Holder
from bench.memory import resident
from bench.names import ASYNCIO
from bench.progress import progress
from bench.settings import pick

FOR_MEMORY = pick(10_000, 500)
"""The number of leases for which memory is measured: so many that other memory is negligible."""
HOLD = pick(30.0, 5.0)
"""How long leases are held, in seconds."""


@dataclass(frozen=True)
class Stay:
    """How many leases are held, with which ttl, and for how long."""

    name: str
    leases: int
    ttl: float
    seconds: float


STAYS = [
    # Only in Python: how often requests are sent for a single lease.
    Stay(ASYNCIO, 1, pick(0.05, 1.0), 2.0),
    *(Stay(name, pick(1000, 100), 10.0, HOLD) for name in HOLDERS),
    Stay(ASYNCIO, 1, 10.0, HOLD),
]
"""In the order in which the holders finish."""


def memory() -> dict[str, dict[str, float]]:
    """Returns the bytes per held lease: of the process, and of the heap where it is measured."""
    progress(f"memory of {FOR_MEMORY} leases")
    return {name: _memory(name) for name in HOLDERS}


def _memory(name: str) -> dict[str, float]:
    with ExitStack() as stack:
        holder = Holder(stack, name)
        before = resident(holder.pid)
        answer = holder.hold(FOR_MEMORY, 10.0)
        figures = {"resident": (resident(holder.pid) - before) / FOR_MEMORY}
        if "heap" in answer:
            figures["heap"] = answer["heap"] / FOR_MEMORY
        holder.rest(0.0)
        return figures


def held() -> list[dict[str, object]]:
    """Measures all holders concurrently, since each of them uses little CPU."""
    with ExitStack() as stack:
        progress("holding leases: starting")
        holders = [Holder(stack, stay.name) for stay in STAYS]
        for holder, stay in zip(holders, STAYS, strict=True):
            holder.hold(stay.leases, stay.ttl)
        progress(f"holding leases for {HOLD:g} s")
        requests = []
        for holder, stay in zip(holders, STAYS, strict=True):
            requests.append(holder.group.meters[0].scripts())
            holder.begin_rest(stay.seconds)
        return [_rested(*each) for each in zip(holders, STAYS, requests, strict=True)]


def _rested(holder: Holder, stay: Stay, requests: int) -> dict[str, object]:
    used = holder.end_rest()
    return {
        "name": stay.name,
        "leases": stay.leases,
        "ttl": stay.ttl,
        "seconds": used["seconds"],
        "requests per node": holder.group.meters[0].scripts() - requests,
        "one by one": stay.leases * used["seconds"] / (stay.ttl / 3),
        "client cpu %": used["client"] * 100,
        "server cpu %": used["server"] * 100,
    }
