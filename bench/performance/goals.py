"""The performance goals of quorlock on five nodes, and whether they are met. Times are medians."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping

from bench.goals import Goal, ratio
from bench.names import (
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
)
from bench.performance.figures import Figures

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


_SIGNS = {"≤": operator.le, "≥": operator.ge, "<": operator.lt}


def goals(figures: Figures) -> list[Goal]:
    return [
        *_one_at_a_time(figures),
        *_in_flight(figures),
        *_servers(figures),
        *_faults(figures),
        *_holding(figures),
        *_start(figures),
    ]


def _goal(what: str, measured: float | None, sign: str, limit: float, unit: str) -> Goal:
    met = None if measured is None else _SIGNS[sign](measured, limit)
    return Goal(what, f"{sign} {limit:g} {unit}", _measured(measured, unit), met)


def _measured(value: float | None, unit: str) -> str:
    if value is None:
        return "not measured"
    if unit.startswith("times "):
        unit = "times"  # the goal beside it names the rest
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.2f} {unit}"


def _one_at_a_time(figures: Figures) -> Iterator[Goal]:
    floor, plain, rslock, redlock, rust, python, asyncio, node = map(
        figures.latency, [FLOOR, FLOOR_PLAIN, RSLOCK, REDLOCK_5, RUST, PYTHON, ASYNCIO, NODE]
    )
    sync, tasks = (figures.fastest_peer(form) for form in ("sync", "async"))
    latency, fastest = "times the latency of", "times as fast as the fastest Python peer"
    for what, measured, sign, limit, unit in [
        ("Rust", ratio(rust, floor), "≤", 1.15, f"{latency} the floor"),
        ("Rust", ratio(rust, rslock), "≤", 1, f"{latency} {RSLOCK}"),
        ("Python", ratio(python, plain), "≤", 1.3, f"{latency} the plain floor"),
        ("Python", ratio(sync, python), "≥", 5, f"{fastest} without asyncio"),
        ("asyncio", ratio(asyncio, plain), "≤", 1.6, f"{latency} the plain floor"),
        ("asyncio", ratio(tasks, asyncio), "≥", 1.7, f"{fastest} with asyncio"),
        ("Node.js", ratio(node, redlock), "≤", 1, f"{latency} {REDLOCK_5}"),
    ]:
        yield _goal(f"{what}, one cycle at a time", measured, sign, limit, unit)


def _in_flight(figures: Figures) -> Iterator[Goal]:
    threads, one = figures.rate(PYTHON, 8), figures.rate(PYTHON, 1)
    rslock, redlock, rust, tasks, node = (
        figures.rate(name, 64) for name in [RSLOCK, REDLOCK_5, RUST_ASYNC, ASYNCIO, NODE]
    )
    best_threads = figures.busiest_peer("sync", 8)
    best_tasks = figures.busiest_peer("async", 64)
    one_node = ratio(figures.one_node_rate(NODE), figures.one_node_rate(REDLOCK_5))
    eight, many = "Python, 8 threads", "64 cycles in flight"
    best = "the best Python peer"
    for what, measured, limit, other in [
        (eight, ratio(threads, one), 1.5, "one thread"),
        (eight, ratio(threads, best_threads), 5, f"{best} without asyncio"),
        (f"Rust (async), {many}", ratio(rust, rslock), 0.9, RSLOCK),
        ("asyncio, 64 tasks", ratio(tasks, rslock), 0.5, RSLOCK),
        ("asyncio, 64 tasks", ratio(tasks, best_tasks), 8, f"{best} with asyncio"),
        (f"Node.js, {many}", ratio(node, rslock), 0.7, RSLOCK),
        (f"Node.js, {many}", ratio(node, redlock), 1.5, REDLOCK_5),
        (f"Node.js, {many}, one node", one_node, 1, REDLOCK_5),
    ]:
        yield _goal(what, measured, "≥", limit, f"times the throughput of {other}")


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
        1.1,
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
            1.2,
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
            what = f"CPU time of {held['name']} with 1,000 held leases, ttl 10 s"
            yield _goal(what, held["client cpu %"], "<", 1, "% of a core")
    heap = figures.all["memory"][RUST]["heap"]
    yield _goal("memory of one held lease in the Rust core", heap, "<", 2048, "bytes")


def _start(figures: Figures) -> Iterator[Goal]:
    start = figures.all["start"]
    for name, times in start["import"].items():
        what = f"start time that importing quorlock adds in {name}"
        yield _goal(what, times["above bare"], "<", 20, "ms")
    for name in [RUST, PYTHON, NODE]:
        trips = start["first lock"][name]["round trips"]
        yield _goal(f"time until the first lock of {name}", trips, "<", 3, "round trips")
