"""Generates `docs/performance.md` from the results of one run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from figures import FLOOR, Figures
from goals import goals
from markdown import failure, micros, name, table
from scale.page import section as scale_section

Summaries = dict[str, dict[str, Any]]

_MET = {True: "yes", False: "**no**", None: "-"}


def page(figures: Figures, scale: dict[str, Any] | None) -> str:
    parts = [
        _introduction(figures),
        _goals(figures),
        _one_at_a_time(figures),
        _in_flight(figures),
        _faults(figures),
        _held(figures),
        _start(figures),
        *([scale_section(scale)] if scale else []),
        _waiting(),
    ]
    return "\n\n".join(parts) + "\n"


def _introduction(figures: Figures) -> str:
    results, machine = figures.all, figures.all["machine"]
    languages = ", ".join(
        f"{language} {version}" for language, version in machine["languages"].items()
    )
    missing = ", ".join(results["missing"])
    conditions = [
        ("date", results["date"]),
        ("quorlock", f"commit {machine['commit']}"),
        ("machine", f"{machine['processor']}, {machine['CPUs']} CPUs, {machine['system']}"),
        ("placement", results["placement"]),
        ("servers", machine["server"]),
        ("languages", languages),
        (
            "other libraries",
            "The versions are pinned in [`bench/peers`](../bench/peers).",
        ),
        ("rounds", f"{results['rounds']} rounds of up to {results['cycles']} cycles per library"),
    ]
    if missing:
        conditions.append(("not installed in this run", missing))
    return "\n\n".join(
        [
            "# Performance",
            "<!-- Written by bench/report.py from bench/results.json: `make bench`. -->",
            _lines(
                "This page compares the cost of quorlock with the cost of raw sockets and of",
                "other libraries. All servers and clients run on one machine and communicate",
                "over loopback.",
            ),
            _lines(
                "**Compare the ratios, not the times.** The times depend on the machine, and",
                "loopback is faster than any network. `make bench` repeats the measurement. For",
                "the method, see [bench/README.md](../bench/README.md).",
            ),
            "\n".join(
                [
                    "- A *cycle* is one acquire and one release of a free lock with a ttl of 10 s.",
                    "- The *floor* is a Rust program that sends the same requests as quorlock over"
                    " raw sockets. The program waits for the replies of a majority of the nodes.",
                    "- The floor has no timeouts, does not undo failed acquires and does not"
                    " reconnect.",
                    "- *Floor, all* is the same program, except that it waits for the replies of"
                    " all nodes.",
                    "- A *Python peer* is another Python library that needs a majority of the nodes"
                    " for a lock.",
                    "- *redlock-4* and *redlock-5* are major versions 4 and 5 of the npm package"
                    " `redlock`.",
                    "- A ratio such as *1.15 times* is a latency or a throughput divided by the"
                    " value that it is compared with.",
                ]
            ),
            _table(["condition", "value"], conditions),
        ]
    )


def _lines(*parts: str) -> str:
    """Joins the parts of a paragraph to one line."""
    return " ".join(parts)


def _table(columns: list[str], rows: list[tuple[str, str]]) -> str:
    """Returns a table of texts, which are left-aligned."""
    return table(columns, rows).replace("---:", "---")


def _goals(figures: Figures) -> str:
    rows = [(each.what, each.goal, each.measured, _MET[each.met]) for each in goals(figures)]
    return "\n\n".join(
        [
            "## Goals",
            "All goals apply to five nodes. All latencies in the table are medians.",
            table(["what is measured", "goal", "measured", "met"], rows),
            "For the reasons why some goals are not met, see"
            " [Where the time goes](where-the-time-goes.md).",
        ]
    )


def _one_at_a_time(figures: Figures) -> str:
    summaries = figures.all["one at a time"]["5"]
    base = summaries[FLOOR].get("median")
    rows = _sorted_rows(summaries, lambda each: _latency_cells(each, base))
    columns = ["five nodes", "median", "quartiles", "p99", "times floor", "CPU", "CPU of servers"]
    counts = sorted(figures.all["one at a time"], key=int)
    return "\n\n".join(
        [
            "## One at a time",
            _lines(
                "In this measurement, one loop runs one cycle after another. *CPU* is the CPU",
                "time that the client process uses per cycle. *CPU of servers* is the CPU time",
                "that all servers together use per cycle. *Times floor* is the median divided by",
                "the median of the floor.",
            ),
            "![Latency of one cycle on five nodes](pictures/performance-one-at-a-time.svg)",
            table(columns, rows),
            "The next table shows the median latency of one cycle for different numbers of nodes."
            " N is the number of nodes. A dash means that the library was not measured with that"
            " number of nodes.",
            "![Latency of one cycle by the number of nodes](pictures/performance-nodes.svg)",
            table(["", *(f"N = {count}" for count in counts)], _latency_by_nodes(figures, counts)),
        ]
    )


def _latency_by_nodes(figures: Figures, counts: list[str]) -> Iterator[list[str]]:
    """Yields a row of medians for each contender, in the order of the table for five nodes."""
    by_count = figures.all["one at a time"]
    medians = {
        contender: summary["median"]
        for summaries in [by_count["1"], by_count["5"]]
        for contender, summary in summaries.items()
        if "median" in summary
    }
    for contender in sorted(medians, key=lambda each: (each not in by_count["5"], medians[each])):
        cells = [_median(by_count[count].get(contender)) for count in counts]
        yield [name(contender), *cells]


def _median(summary: dict[str, Any] | None) -> str:
    if summary is None:
        return "-"
    return failure(summary) if "failure" in summary else micros(summary["median"])


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
    levels = figures.all["in flight"]
    detailed = _sorted_rows(levels["64"], _rate_cells, key="rate", reverse=True)
    columns = ["64 in flight", "cycles/s", "median", "p99", "CPU", "CPU of servers"]
    return "\n\n".join(
        [
            "## Many in flight",
            _lines(
                "In this measurement, one process runs many cycles concurrently on five nodes.",
                "Each concurrent cycle has its own key. The cycles run in tasks, promises or",
                "goroutines. For libraries that block the caller, the cycles run in at most 8",
                "threads.",
            ),
            "![Throughput](pictures/performance-throughput.svg)",
            "The next table shows how many cycles per second each library completes. *In"
            " flight* is the number of concurrent cycles. *Hangs* means that the library did not"
            " answer within 10 s. A dash means that the library was not measured with that number"
            " of cycles.",
            table(["", *(f"{int(level):,} in flight" for level in levels)], _rates(figures)),
            "The next table shows the latency and the CPU time of a cycle when 64 cycles are in"
            " flight.",
            table(columns, detailed),
        ]
    )


def _rates(figures: Figures) -> Iterator[list[str]]:
    """Yields a row of rates for each contender, those with the highest rate first."""
    levels = figures.all["in flight"].values()
    best: dict[str, float] = {}
    for summaries in levels:
        for contender, summary in summaries.items():
            best[contender] = max(best.get(contender, 0.0), summary.get("rate", 0.0))
    for contender in sorted(best, key=lambda each: best[each], reverse=True):
        yield [name(contender), *(_rate(summaries.get(contender)) for summaries in levels)]


def _rate(summary: dict[str, Any] | None) -> str:
    if summary is None:
        return "-"
    return failure(summary) if "failure" in summary else f"{summary['rate']:,.0f}"


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
            _lines(
                "In this measurement, one loop runs one cycle after another on five nodes, and",
                "some of the nodes fail. Each cell shows the median latency. The ratio in",
                "parentheses is that latency divided by the latency of the same library on",
                "healthy nodes, measured in the same rounds.",
            ),
            "\n".join(
                [
                    "- *Frozen* nodes are stopped with SIGSTOP.",
                    "- *Killed* nodes are ended with SIGKILL.",
                    "- *Slow* nodes send each reply 50 ms late.",
                    "- *Hangs* means that the library did not answer within 10 s.",
                    "- *Fails* means that the library reported an error in two consecutive rounds.",
                ]
            ),
            "![Latency with nodes that fail](pictures/performance-faults.svg)",
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
            _lines(
                "In this measurement, the client only renews its leases. *Held* is how long it",
                "holds them. *Requests* is the number of requests that the client sends",
                "to each node. *One by one* is the number of requests that the client would send",
                "to each node without batching: three requests per ttl for each lease. *CPU* is",
                "the CPU time of the client, and *CPU of a server* is the CPU time of one",
                "server. Both are percentages of one core.",
            ),
            table(columns, rows),
            _lines(
                "The next table shows how many bytes of memory one held lease takes. The figures",
                "are averages over 10,000 leases. *Heap* is the memory that the Rust core",
                "allocates on its heap. *Process* is the growth of the process's resident",
                "memory. A dash means that the value was not measured.",
            ),
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
            "The *bare* process only starts and exits. The *importing* process also imports"
            " quorlock.",
            table(["", "bare", "importing", "difference"], imports),
            _lines(
                "The next table shows the time that a new process needs for its first lock on",
                "five nodes, from before the client is created until the lease is held.",
                "*Loopback* is the time on loopback. For *round trips*, each",
                f"reply is delayed by {start['round trip ms']} ms, and the time is divided by",
                f"{start['round trip ms']} ms. Opening a TCP connection is not delayed. *New",
                "nodes* have not loaded the scripts yet. *Plain sockets* is a program that only",
                "connects and sends one PING to each node.",
            ),
            table(["", "loopback", "round trips", "round trips, new nodes"], first),
        ]
    )


def _waiting() -> str:
    return (
        "## Under contention\n\n`make bench-waiting` measures the cost of waiting, the duration of"
        " hand-overs, and fairness. For the results, see [Waiting](waiting.md)."
    )
