"""The performance goals of quorlock on five nodes, and whether they are met. Times are medians."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from figures import ASYNCIO, FLOOR, NODE, PYTHON, RUST, Figures, ratio

FAULT_LIMIT = 1.2
BYTES = 2048
IMPORT_MILLISECONDS = 20
ROUND_TRIPS = 3
NPM_REDLOCKS = ["redlock-4", "redlock-5"]


@dataclass(frozen=True)
class Goal:
    """One row of the table. `met` is None if it was not measured."""

    what: str
    goal: str
    measured: str
    met: bool | None


def goals(figures: Figures) -> list[Goal]:
    return [
        *_one_at_a_time(figures),
        *_in_flight(figures),
        *_faults(figures),
        *_holding(figures),
        *_start(figures),
    ]


def _at_most(what: str, measured: float | None, limit: float, unit: str) -> Goal:
    met = None if measured is None else measured <= limit
    return Goal(what, f"≤ {limit:g} {unit}", _measured(measured, unit), met)


def _at_least(what: str, measured: float | None, limit: float, unit: str) -> Goal:
    met = None if measured is None else measured >= limit
    return Goal(what, f"≥ {limit:g} {unit}", _measured(measured, unit), met)


def _below(what: str, measured: float | None, limit: float, unit: str) -> Goal:
    met = None if measured is None else measured < limit
    return Goal(what, f"< {limit:g} {unit}", _measured(measured, unit), met)


def _measured(value: float | None, unit: str) -> str:
    if value is None:
        return "not measured"
    if unit.startswith("times "):
        unit = "times"  # the goal beside it names the rest
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.2f} {unit}"


def _one_at_a_time(figures: Figures) -> Iterator[Goal]:
    floor, fastest = figures.latency(FLOOR), figures.fastest_peer("Python")
    rust, python = figures.latency(RUST), figures.latency(PYTHON)
    asyncio, node = figures.latency(ASYNCIO), figures.latency(NODE)
    rslock, redlock = figures.latency("rslock"), figures.latency(NPM_REDLOCKS[1])
    of_peer = "times as fast as the fastest Python peer"
    of_floor = "times the latency of the floor"
    of_rslock, of_redlock = "times the latency of rslock", "times the latency of redlock-5"
    yield _at_most("Rust, one cycle at a time", ratio(rust, floor), 1.15, of_floor)
    yield _at_most("Rust, one cycle at a time", ratio(rust, rslock), 0.6, of_rslock)
    yield _at_most("Python, one cycle at a time", ratio(python, floor), 1.5, of_floor)
    yield _at_least("Python, one cycle at a time", ratio(fastest, python), 5, of_peer)
    yield _at_most("asyncio, one cycle at a time", ratio(asyncio, floor), 2.2, of_floor)
    yield _at_least("asyncio, one cycle at a time", ratio(fastest, asyncio), 1.7, of_peer)
    yield _at_most("Node.js, one cycle at a time", ratio(node, redlock), 1, of_redlock)


def _in_flight(figures: Figures) -> Iterator[Goal]:
    threads, one = figures.rate(PYTHON, 8), figures.rate(PYTHON, 1)
    tasks, floor = figures.rate(ASYNCIO, 64), figures.rate(FLOOR, 64)
    alone, best, of_floor, of_npm = (
        f"times the throughput of {what}"
        for what in ["one thread", "the best Python peer", "the floor", "the faster npm redlock"]
    )
    yield _at_least("Python, 8 threads", ratio(threads, one), 1.5, alone)
    yield _at_least("Python, 8 threads", ratio(threads, figures.busiest_peer("Python", 8)), 5, best)
    yield _at_least("asyncio, 64 tasks", ratio(tasks, floor), 0.4, of_floor)
    yield _at_least("asyncio, 64 tasks", ratio(tasks, figures.busiest_peer("Python", 64)), 8, best)
    redlocks = [figures.rate(name, 64) for name in NPM_REDLOCKS]
    faster = max((rate for rate in redlocks if rate is not None), default=None)
    node = ratio(figures.rate(NODE, 64), faster)
    yield _at_least("Node.js, 64 cycles in flight", node, 5, of_npm)


def _faults(figures: Figures) -> Iterator[Goal]:
    names = {"Rust": RUST, "Python": PYTHON, "asyncio": ASYNCIO, "Node.js": NODE}
    for fault in figures.all["faults"]:
        ratios = {short: figures.times_healthy(name, fault) for short, name in names.items()}
        known = {short: value for short, value in ratios.items() if value is not None}
        count, _, state = fault.partition(" ")
        yield Goal(
            f"{count} of five nodes {state}",
            f"≤ {FAULT_LIMIT:g} times the latency on healthy nodes, in each language",
            ", ".join(f"{short} {value:.2f} times" for short, value in known.items()),
            # A contender that fails under the fault has no figure.
            len(known) == len(names) and max(known.values()) <= FAULT_LIMIT,
        )


def _holding(figures: Figures) -> Iterator[Goal]:
    for held in figures.all["held"]:
        if held["leases"] == 1000:
            yield _below(
                f"CPU time of {held['name']} with 1,000 held leases, ttl 10 s",
                held["client cpu %"],
                1,
                "% of a core",
            )
    heap = figures.all["memory"][RUST]["heap"]
    yield _below("memory of one held lease in the Rust core", heap, BYTES, "bytes")


def _start(figures: Figures) -> Iterator[Goal]:
    start = figures.all["start"]
    for name, times in start["import"].items():
        above = times["above bare"]
        yield _below(
            f"start time that importing quorlock adds in {name}", above, IMPORT_MILLISECONDS, "ms"
        )
    for name in [RUST, PYTHON, NODE]:
        trips = start["first lock"][name]["round trips"]
        yield _below(f"time until the first lock of {name}", trips, ROUND_TRIPS, "round trips")
