"""The performance goals of `quorlock serve` on five nodes, and whether they are met."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.goals import Goal, at_most, ratio
from bench.names import ASYNCIO, REDISSON, REDSYNC, RUST, SERVE

IN_FLIGHT = 64
COST = 1.6
"""How many times as long as in a Rust process a cycle may take."""
THROUGHPUT = 1.3
"""How many times as many cycles per second asyncio may run."""
MEMORY = 100
"""Less than so many megabytes for the daemon with its idle connections."""
FREED = 50
"""Milliseconds within which the lock of a killed client is free."""


def goals(results: dict[str, Any]) -> Iterator[Goal]:
    one, many = results["cycles"]["1"], results["cycles"][str(IN_FLIGHT)]
    serve, rust = one[SERVE].get("median"), one[RUST].get("median")
    yield at_most("one cycle at a time", ratio(serve, rust), COST, "times the latency of Rust")
    rates = many[ASYNCIO].get("rate"), many[SERVE].get("rate")
    times = "times the throughput of the daemon"
    yield at_most(f"asyncio with {IN_FLIGHT} cycles in flight", ratio(*rates), THROUGHPUT, times)
    for peer in (REDSYNC, REDISSON):
        latency = ratio(serve, one[peer].get("median"))
        yield at_most("one cycle at a time", latency, 1, f"times the latency of {peer}")
        rate = ratio(many[peer].get("rate"), many[SERVE].get("rate"))
        yield at_most(f"{peer} with {IN_FLIGHT} cycles in flight", rate, 1, times)
    idle = results["idle"]
    what = f"memory of the daemon with {idle['connections']:,} idle connections"
    yield at_most(what, idle["with"] / 1e6, MEMORY, "MB")
    for name, freed in results["kills"].items():
        what = f"time until a waiter of {name} has the lock of a killed client, median"
        yield at_most(what, freed, FREED, "ms")
