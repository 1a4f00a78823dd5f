"""Generates `docs/performance.md` from the results of one run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from figures import FLOOR, Figures
from goals import goals
from markdown import failure, micros, name, table

Summaries = dict[str, dict[str, Any]]

_MET = {True: "yes", False: "**no**", None: "-"}


def page(figures: Figures) -> str:
    parts = [
        _introduction(figures),
        _goals(figures),
        _one_at_a_time(figures),
        _in_flight(figures),
        _faults(figures),
        _held(figures),
        _start(figures),
        _waiting(),
    ]
    return "\n\n".join(parts) + "\n"


def _introduction(figures: Figures) -> str:
    results, machine = figures.all, figures.all["machine"]
    languages = ", ".join(
        f"{language} {version}" for language, version in machine["languages"].items()
    )
    missing = ", ".join(results["missing"])
    lines = [
        "# Performance",
        "",
        "<!-- Written by bench/report.py from bench/results.json: `make bench`. -->",
        "",
        "What quorlock costs, beside raw sockets and beside other libraries, on real servers, all"
        " on one machine. **Read the ratios**: times depend on the machine, and loopback is faster"
        " than any network. `make bench` repeats it; [how it is measured](../bench/README.md).",
        "",
        "- A *cycle* is acquire + release, uncontended, with a ttl of 10 s.",
        "- The *floor* is the same requests on raw sockets, in Rust, waiting for a majority,"
        " without timeouts, undo or reconnects. *Floor, all* waits for all nodes.",
        f"- {results['date']}; {machine['processor']}, {machine['CPUs']} CPUs, {machine['system']};"
        f" {results['placement']}; {results['rounds']} rounds of up to {results['cycles']} cycles.",
        f"- {machine['server']}, {languages}; quorlock at {machine['commit']}. Other libraries are"
        " pinned in `bench/peers`.",
    ]
    if missing:
        lines.append(f"- Could not be installed in this run: {missing}.")
    return "\n".join(lines)


def _goals(figures: Figures) -> str:
    rows = [(each.what, each.goal, each.measured, _MET[each.met]) for each in goals(figures)]
    return "\n\n".join(
        [
            "## Goals",
            "On five nodes; times are medians. Python peers are those that lock on a majority.",
            table(["", "goal", "measured", "met"], rows),
            "Where a goal is not met, [where the time goes](where-the-time-goes.md) says why.",
        ]
    )


def _one_at_a_time(figures: Figures) -> str:
    parts = [
        "## One at a time",
        "![One at a time](pictures/performance-one-at-a-time.svg)",
        "![By the number of nodes](pictures/performance-nodes.svg)",
        "*CPU* is per cycle, of the client's process and of all servers together.",
    ]
    for count, summaries in figures.all["one at a time"].items():
        base = summaries[FLOOR].get("median")
        rows = _sorted_rows(summaries, lambda each, base=base: _latency_cells(each, base))
        columns = ["", "median", "quartiles", "p99", "times floor", "CPU", "CPU of servers"]
        parts += [f"### N = {count}", table(columns, rows)]
    return "\n\n".join(parts)


def _latency_cells(summary: dict[str, Any], base: float | None) -> list[str]:
    return [
        micros(summary["median"]),
        f"{summary['low']:,.0f} to {summary['high']:,.0f} µs",
        micros(summary["p99"]),
        f"{summary['median'] / base:.2f}" if base else "-",
        micros(summary["client cpu"]),
        micros(summary["server cpu"]),
    ]


def _sorted_rows(
    summaries: Summaries, cells: Any, *, key: str = "median", reverse: bool = False
) -> Iterator[list[str]]:
    """Yields the rows, the best one first. Contenders without figures come last."""
    good = [each for each in summaries.items() if "failure" not in each[1]]
    good.sort(key=lambda each: each[1][key], reverse=reverse)
    for contender, summary in good:
        yield [_noted(contender, summary), *cells(summary)]
    for contender, summary in summaries.items():
        if "failure" in summary:
            yield [name(contender), failure(summary)]


def _noted(contender: str, summary: dict[str, Any]) -> str:
    failed = summary["failed turns"]
    return f"{name(contender)} (failed in {failed} turns)" if failed else name(contender)


def _in_flight(figures: Figures) -> str:
    parts = [
        "## Many in flight",
        "One process, each cycle on a key of its own: tasks, promises or goroutines; 8 of them are"
        " threads where the library blocks.",
        "![Throughput](pictures/performance-throughput.svg)",
    ]
    for level, summaries in figures.all["in flight"].items():
        rows = _sorted_rows(summaries, _rate_cells, key="rate", reverse=True)
        columns = ["", "cycles/s", "median", "p99", "CPU", "CPU of servers"]
        parts += [f"### {int(level):,} in flight, N = 5", table(columns, rows)]
    return "\n\n".join(parts)


def _rate_cells(summary: dict[str, Any]) -> list[str]:
    return [
        f"{summary['rate']:,.0f}",
        *(micros(summary[key]) for key in ["median", "p99", "client cpu", "server cpu"]),
    ]


def _faults(figures: Figures) -> str:
    faults = list(figures.all["faults"])
    contenders = figures.all["faults"][faults[0]]["faulty"]
    rows = [
        [name(each), *(_fault_cell(figures, each, fault) for fault in faults)]
        for each in contenders
    ]
    return "\n\n".join(
        [
            "## With nodes that fail",
            "One at a time, N = 5: the median, and how many times that of the same contender on"
            " healthy nodes in the same rounds. *Hangs*: no answer within 10 s.",
            "![With nodes that fail](pictures/performance-faults.svg)",
            table(["", *faults], rows),
        ]
    )


def _fault_cell(figures: Figures, contender: str, fault: str) -> str:
    summary = figures.all["faults"][fault]["faulty"][contender]
    if "failure" in summary:
        return failure(summary)
    times = figures.times_healthy(contender, fault)
    return f"{micros(summary['median'])}" + (f" ({times:,.2f} times)" if times else "")


def _held(figures: Figures) -> str:
    rows = [
        [
            name(each["name"]),
            f"{each['leases']:,}",
            f"{each['ttl']:g} s",
            f"{each['seconds']:.0f} s",
            f"{each['requests per node']:,}",
            f"{each['one by one']:,.0f}",
            f"{each['client cpu %']:.2f} %",
            f"{each['server cpu %']:.2f} %",
        ]
        for each in figures.all["held"]
    ]
    columns = ["", "leases", "ttl", "held", "requests", "one by one", "CPU", "CPU of a server"]
    memory = [
        [
            name(holder),
            f"{sizes['heap']:,.0f}" if "heap" in sizes else "-",
            f"{sizes['resident']:,.0f}",
        ]
        for holder, sizes in figures.all["memory"].items()
    ]
    return "\n\n".join(
        [
            "## Held leases",
            "Nothing is done but to extend them. *Requests* are per node; *one by one* is how many"
            " they would be if each lease were extended alone, at each third of its ttl. CPU in per"
            " cent of one core.",
            table(columns, rows),
            "Bytes per lease, of 10,000: on the heap of the core, where an allocator counts them,"
            " and by how much the process has grown (resident memory), with what the language"
            " adds.",
            table(["", "heap", "process"], memory),
        ]
    )


def _start(figures: Figures) -> str:
    start = figures.all["start"]
    imports = [
        [language, *(f"{times[key]:.1f} ms" for key in ["bare", "importing", "above bare"])]
        for language, times in start["import"].items()
    ]
    first = [
        [
            name(each),
            f"{figures_['loopback ms']:.1f} ms",
            f"{figures_['round trips']:.2f}",
            f"{figures_['round trips, new nodes']:.2f}",
        ]
        for each, figures_ in start["first lock"].items()
    ]
    return "\n\n".join(
        [
            "## Start",
            "Processes that import quorlock and end, beside those that only end.",
            table(["", "bare", "importing", "difference"], imports),
            "The first lock of a process, from before the client is made until the lease is held,"
            " N = 5: on loopback, and in round trips of a network where each takes"
            f" {start['round trip ms']} ms (connecting takes none there; *new*: nodes that do not"
            " know the scripts yet). *Plain sockets* connect and send a PING.",
            table(["", "loopback", "round trips", "new"], first),
        ]
    )


def _waiting() -> str:
    return (
        "## Under contention\n\nWhat waiting costs, hand-overs and fairness are measured by"
        " `make bench-waiting`: see [waiting](waiting.md#what-it-costs)."
    )
