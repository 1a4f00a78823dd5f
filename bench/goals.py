"""The performance goals of quorlock on five nodes, and whether they are met. Times are medians."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from figures import (
    ASYNCIO,
    FLOOR,
    FLOOR_PLAIN,
    NODE,
    PYTHON,
    REDLOCK_5,
    RSLOCK,
    RUST,
    RUST_ASYNC,
    UVLOOP,
    Figures,
    ratio,
)

FAULT_LIMIT = 1.2
CONTENTION_LIMIT = 1.1
BYTES = 2048
IMPORT_MILLISECONDS = 20
ROUND_TRIPS = 3
FORMS = {
    "Rust": RUST,
    "Rust (async)": RUST_ASYNC,
    "Python": PYTHON,
    "asyncio": ASYNCIO,
    "uvloop": UVLOOP,
    "Node.js": NODE,
}
"""All forms of quorlock, by their short names."""
FORMS_IN_FLIGHT = ["Rust (async)", "asyncio", "uvloop", "Node.js"]
"""The forms that are measured with 64 cycles in flight."""


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
        *_servers(figures),
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
    floor, plain = figures.latency(FLOOR), figures.latency(FLOOR_PLAIN)
    rslock, redlock = figures.latency(RSLOCK), figures.latency(REDLOCK_5)
    rust, python = figures.latency(RUST), figures.latency(PYTHON)
    asyncio, node = figures.latency(ASYNCIO), figures.latency(NODE)
    sync, tasks = (figures.fastest_peer("Python", form) for form in ("sync", "async"))
    of_sync = "times as fast as the fastest Python peer without asyncio"
    of_async = "times as fast as the fastest Python peer with asyncio"
    of_floor, of_plain, of_rslock, of_redlock = (
        f"times the latency of {what}"
        for what in ["the floor", "the plain floor", RSLOCK, REDLOCK_5]
    )
    yield _at_most("Rust, one cycle at a time", ratio(rust, floor), 1.15, of_floor)
    yield _at_most("Rust, one cycle at a time", ratio(rust, rslock), 1, of_rslock)
    yield _at_most("Python, one cycle at a time", ratio(python, plain), 1.3, of_plain)
    yield _at_least("Python, one cycle at a time", ratio(sync, python), 5, of_sync)
    yield _at_most("asyncio, one cycle at a time", ratio(asyncio, plain), 1.6, of_plain)
    yield _at_least("asyncio, one cycle at a time", ratio(tasks, asyncio), 1.7, of_async)
    yield _at_most("Node.js, one cycle at a time", ratio(node, redlock), 1, of_redlock)


def _in_flight(figures: Figures) -> Iterator[Goal]:
    threads, one = figures.rate(PYTHON, 8), figures.rate(PYTHON, 1)
    rslock, redlock = figures.rate(RSLOCK, 64), figures.rate(REDLOCK_5, 64)
    rust, tasks, node = (figures.rate(name, 64) for name in [RUST_ASYNC, ASYNCIO, NODE])
    best_threads = figures.busiest_peer("Python", "sync", 8)
    best_tasks = figures.busiest_peer("Python", "async", 64)
    one_node, redlock_one_node = figures.one_node_rate(NODE), figures.one_node_rate(REDLOCK_5)
    alone, of_threads, of_tasks, of_rslock, of_redlock = (
        f"times the throughput of {what}"
        for what in [
            "one thread",
            "the best Python peer without asyncio",
            "the best Python peer with asyncio",
            RSLOCK,
            REDLOCK_5,
        ]
    )
    yield _at_least("Python, 8 threads", ratio(threads, one), 1.5, alone)
    yield _at_least("Python, 8 threads", ratio(threads, best_threads), 5, of_threads)
    yield _at_least("Rust (async), 64 cycles in flight", ratio(rust, rslock), 0.9, of_rslock)
    yield _at_least("asyncio, 64 tasks", ratio(tasks, rslock), 0.5, of_rslock)
    yield _at_least("asyncio, 64 tasks", ratio(tasks, best_tasks), 8, of_tasks)
    yield _at_least("Node.js, 64 cycles in flight", ratio(node, rslock), 0.7, of_rslock)
    yield _at_least("Node.js, 64 cycles in flight", ratio(node, redlock), 1.5, of_redlock)
    yield _at_least(
        "Node.js, 64 cycles in flight, one node", ratio(one_node, redlock_one_node), 1, of_redlock
    )


def _servers(figures: Figures) -> Iterator[Goal]:
    for level, setting, forms, limit in [
        (None, "one cycle at a time", ["Rust", "Python"], 1.1),
        (None, "one cycle at a time", ["Rust (async)", "asyncio", "uvloop", "Node.js"], 1.3),
        (64, "64 cycles in flight", FORMS_IN_FLIGHT, 1.3),
    ]:
        rslock = figures.node_cpu(RSLOCK, level)
        ratios = {form: ratio(figures.node_cpu(FORMS[form], level), rslock) for form in forms}
        yield _each_at_most(
            f"CPU time of a server per cycle, {setting}",
            ratios,
            limit,
            f"times the CPU time with {RSLOCK}",
            is_measured=rslock is not None,
        )
    ratios = {form: figures.times_before_contention(name) for form, name in FORMS.items()}
    yield _each_at_most(
        "CPU time of a server per cycle, of a client that has waited for a lock",
        ratios,
        CONTENTION_LIMIT,
        "times the CPU time with a client that has not",
        is_measured=any(ratios.values()),
    )


def _faults(figures: Figures) -> Iterator[Goal]:
    for fault in figures.all["faults"]:
        ratios = {form: figures.times_healthy(name, fault) for form, name in FORMS.items()}
        count, _, state = fault.partition(" ")
        yield _each_at_most(
            f"{count} of five nodes {state}",
            ratios,
            FAULT_LIMIT,
            "times the latency on healthy nodes",
        )


def _each_at_most(
    what: str,
    ratios: Mapping[str, float | None],
    limit: float,
    unit: str,
    *,
    is_measured: bool = True,
) -> Goal:
    """Returns a goal of all forms. A form without a figure has failed, and misses the goal."""
    forms = "each form of quorlock" if len(ratios) == len(FORMS) else ", ".join(ratios)
    goal = f"≤ {limit:g} {unit}, in {forms}"
    if not is_measured:
        return Goal(what, goal, "not measured", None)
    known = {form: value for form, value in ratios.items() if value is not None}
    return Goal(
        what,
        goal,
        ", ".join(f"{form} {value:.2f} times" for form, value in known.items()),
        len(known) == len(ratios) and max(known.values()) <= limit,
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
