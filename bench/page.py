"""Generates `docs/performance.md` from the results of one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from elections.page import section as elections_section
from figures import FLOOR, FLOOR_PLAIN, RSLOCK, Figures, ratio
from goals import goals
from markdown import failure, micros, name, table
from scale.page import section as scale_section
from semaphores.page import section as semaphores_section
from serve.page import section as serve_section
from shared.page import section as shared_section

Summaries = dict[str, dict[str, Any]]

_MET = {True: "yes", False: "**no**", None: "-"}


def page(
    figures: Figures,
    scale: dict[str, Any] | None = None,
    elections: dict[str, Any] | None = None,
    shared: dict[str, Any] | None = None,
    semaphores: dict[str, Any] | None = None,
    serve: dict[str, Any] | None = None,
) -> str:
    parts = [
        _introduction(figures),
        _one_at_a_time(figures),
        _in_flight(figures),
        _servers(figures),
        _round_trips(figures),
        _faults(figures),
        _held(figures),
        _start(figures),
        *([scale_section(scale)] if scale else []),
        _waiting(),
        *([elections_section(elections)] if elections else []),
        *([shared_section(shared)] if shared else []),
        *([semaphores_section(semaphores)] if semaphores else []),
        *([serve_section(serve)] if serve else []),
        _goals(figures),
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
            "![Latency of one cycle on five nodes](pictures/performance-one-at-a-time.svg)",
            _lines(
                "The picture above shows the latency of one cycle on five nodes. A cycle is one",
                "acquire followed by one release of a free lock with a ttl of 10 s. Shorter is",
                "better. For the numbers in the picture, see [One at a time](#one-at-a-time).",
            ),
            _lines(
                "This page compares the latency, throughput and CPU time of quorlock with those of",
                "raw sockets and other libraries. All servers and clients run on one machine and",
                "communicate over loopback.",
            ),
            _lines(
                "**Compare the ratios between libraries, not the times.** The times depend on the",
                "machine, and loopback is faster than any network. To repeat the measurements, run",
                "`make bench`. For the method, see [bench/README.md](../bench/README.md). For the",
                "targets that quorlock should meet, see [the goals](#goals).",
            ),
            "\n".join(
                [
                    "- The *floor* is a Rust program that uses raw sockets to send the same"
                    " requests that quorlock sends. The program waits for the replies of a majority"
                    " of the nodes, has no timeouts, does not delete the keys of failed acquires,"
                    " and does not reconnect. The program never sends several requests as one"
                    " command, as quorlock does with many cycles in flight.",
                    "- *Floor, all* is the *floor* program with one difference: it waits for the"
                    " replies of all nodes.",
                    "- *Floor, plain* is the *floor* program with simpler requests: an acquire is a"
                    " `SET NX PX`, and a release is a script that deletes the key if it contains"
                    " the token.",
                    "- A *Python peer* is a Python library, other than quorlock, that acquires each"
                    " lock on a majority of the nodes.",
                    "- *redlock-4* and *redlock-5* are major versions 4 and 5 of the npm package"
                    " `redlock`.",
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
            "All goals in the next table apply to five nodes. All latencies in the table are"
            " medians.",
            table(["what is measured", "goal", "measured", "met"], rows),
            "To learn why quorlock misses some goals, see"
            " [Where the time goes](where-the-time-goes.md).",
        ]
    )


def _one_at_a_time(figures: Figures) -> str:
    summaries = figures.all["one at a time"]["5"]
    floors = [figures.latency(FLOOR), figures.latency(FLOOR_PLAIN)]
    rows = _sorted_rows(summaries, lambda each: _latency_cells(each, floors))
    columns = [
        "five nodes",
        "median",
        "quartiles",
        "p99",
        "times floor",
        "times plain floor",
        "CPU",
    ]
    counts = sorted(figures.all["one at a time"], key=int)
    return "\n\n".join(
        [
            "## One at a time",
            _lines(
                "In this measurement, one client runs one cycle at a time. *CPU* is the CPU time",
                "that the client process uses per cycle. *Times floor* is a library's median",
                "latency divided by the median latency of the *floor*. *Times plain floor* is a",
                "library's median latency divided by the median latency of *floor, plain*.",
            ),
            table(columns, rows),
            "The next table shows the median latency of one cycle for different numbers of nodes"
            " (N). A dash means that the library was not measured with that"
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


def _latency_cells(summary: dict[str, Any], floors: list[float | None]) -> list[str]:
    return [
        micros(summary["median"]),
        f"{summary['low']:,.0f} to {summary['high']:,.0f} µs",
        micros(summary["p99"]),
        *(_times(summary["median"], floor) for floor in floors),
        micros(summary["client cpu"]),
    ]


def _times(figure: float | None, base: float | None) -> str:
    times = ratio(figure, base)
    return "-" if times is None else f"{times:.2f}"


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
    detailed, one_node = (
        _sorted_rows(summaries, _rate_cells, key="rate", reverse=True)
        for summaries in [levels["64"], figures.all["in flight, one node"]]
    )
    columns = ["64 in flight", "cycles/s", "median", "p99", "CPU"]
    return "\n\n".join(
        [
            "## Many in flight",
            _lines(
                "In this measurement, one process runs many cycles concurrently on five nodes.",
                "Each concurrent cycle locks a different resource. The cycles run in tasks,",
                "promises or goroutines. The cycles of a library with blocking calls run in at",
                "most 8 threads.",
            ),
            "![Throughput](pictures/performance-throughput.svg)",
            "The next table shows how many cycles per second each library completes. *In"
            " flight* is the number of concurrent cycles. *Hangs* means that a call to the library"
            " did not return within 10 s. A dash means that the library was not measured with that"
            " number of concurrent cycles.",
            table(["", *(f"{int(level):,} in flight" for level in levels)], _rates(figures)),
            "The next table shows the latency of a cycle, and the CPU time that the client process"
            " uses per cycle, when 64 cycles are in flight.",
            table(columns, detailed),
            "The next table shows the same figures for clients that use only one node.",
            table(["64 in flight, one node", *columns[1:]], one_node),
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
        *(micros(summary[key]) for key in ["median", "p99", "client cpu"]),
    ]


def _servers(figures: Figures) -> str:
    columns = ["five nodes", "one at a time", "times rslock", "64 in flight", "times rslock"]
    return "\n\n".join(
        [
            "## CPU time of the servers",
            _lines(
                "A server runs commands in one thread, so the server's CPU time per cycle limits",
                "the total throughput of all clients. The next table shows the average CPU time",
                "that each of the five servers uses per cycle. *Times rslock* is this CPU time",
                "divided by the CPU time that a server uses per cycle of the Rust library rslock.",
                "A dash means that the value was not measured.",
            ),
            table(columns, _server_rows(figures)),
            _lines(
                "A client that has to wait for a lock subscribes to messages of the nodes. The",
                "next table compares the CPU time that a server uses per cycle for a client that",
                "has never waited, and for a client that has waited once. The clients run one",
                "cycle at a time.",
            ),
            table(
                ["", "never waited", "waited once", "ratio"],
                _contention_rows(figures.all["contention"]),
            ),
        ]
    )


def _contention_rows(summaries: Mapping[str, Summaries]) -> Iterator[list[str]]:
    for each in summaries["before"]:
        before, after = (
            summaries[kind][each].get("server cpu per node") for kind in ["before", "after"]
        )
        yield [name(each), _node_cpu(before), _node_cpu(after), _times(after, before)]


def _node_cpu(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.1f} µs"


def _server_rows(figures: Figures) -> Iterator[list[str]]:
    """Yields a row for each contender, those that need the least CPU time one at a time first."""
    levels = [None, 64]
    measured = {
        each: [figures.node_cpu(each, level) for level in levels]
        for each in figures.all["one at a time"]["5"]
    }
    bases = [figures.node_cpu(RSLOCK, level) for level in levels]
    for each in sorted(measured, key=lambda each: measured[each][0] or inf):
        cells: list[str] = []
        for figure, base in zip(measured[each], bases, strict=True):
            cells += [_node_cpu(figure), _times(figure, base)]
        yield [name(each), *cells]


def _round_trips(figures: Figures) -> str:
    by_time = figures.round_trips()
    parts = [
        "## On a network",
        _lines(
            "One client runs one cycle at a time on five nodes. The benchmark delays each reply of",
            "a node: in one measurement by 0.5 ms (a typical round-trip time within an",
            "availability zone), and in another measurement by 2 ms (a typical round-trip time",
            "between availability zones). A cycle takes at least two round trips: 1 ms",
            "in the first measurement, and 4 ms in the second.",
        ),
    ]
    if not by_time:
        return "\n\n".join([*parts, "It is not part of the run that this page shows."])
    columns = [""]
    for milliseconds in by_time:
        columns += [f"round trip {milliseconds:g} ms", "times plain floor"]
    return "\n\n".join(
        [
            *parts,
            "The next table shows the median latency of each library, and the ratio of this latency"
            " to the median latency of *floor, plain*.",
            table(columns, _round_trip_rows(by_time)),
        ]
    )


def _round_trip_rows(by_time: Mapping[float, Summaries]) -> Iterator[list[str]]:
    """Yields a row for each contender, the fastest with the shortest round trip first."""
    first = next(iter(by_time.values()))
    for each in sorted(first, key=lambda each: first[each].get("median", inf)):
        cells: list[str] = []
        for summaries in by_time.values():
            base = summaries.get(FLOOR_PLAIN, {}).get("median")
            cells += [_median(summaries[each]), _times(summaries[each].get("median"), base)]
        yield [name(each), *cells]


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
                "One client runs one cycle at a time on five nodes, while some of the nodes are",
                "frozen, killed or slow. Each cell of the table shows the median latency of a",
                "cycle. The ratio in parentheses is this latency divided by the library's latency",
                "on healthy nodes. Each round of the benchmark measured both latencies, so",
                "changes in the speed of the machine affect both.",
            ),
            "\n".join(
                [
                    "- *Frozen* nodes are stopped with SIGSTOP.",
                    "- *Killed* nodes are terminated with SIGKILL.",
                    "- *Slow* nodes are behind a relay that delays each reply by 50 ms. They are"
                    " compared with nodes behind a relay that does not delay the replies.",
                    "- *Hangs* means that a call to the library did not return within 10 s.",
                    "- *Fails* means that the library reported an error in two consecutive rounds"
                    " of the benchmark.",
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
                "In this measurement, a client only holds and renews leases. *Held* is the time",
                "for which the client holds the leases. *Requests* is the number of requests that",
                "the client sends to each node in this time. *One by one* is the number of",
                "requests that the client would send to each node if it renewed each lease",
                "separately: three requests per ttl for each lease. *CPU* is the CPU time of the",
                "client, and *CPU of a server* is the CPU time of one server. Both CPU times are",
                "percentages of one core.",
            ),
            table(columns, rows),
            _lines(
                "The next table shows how many bytes of memory one held lease uses. The figures",
                "are averages over 10,000 leases. *Heap* is the memory that the Rust core",
                "allocates on its heap. *Process* is the growth of the process's resident",
                "memory per lease. A dash means that the value was not measured.",
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
            "The next table compares the run times of two processes. The *bare* process only starts"
            " and exits. The *importing* process starts, imports quorlock, and exits.",
            table(["", "bare", "importing", "difference"], imports),
            _lines(
                "The next table shows the time that a new process needs for its first lock on",
                "five nodes. The measurement starts before the process creates the client, and",
                "ends when the process holds the lease. *Loopback* is the time if the benchmark",
                "adds no delay. To calculate *Round trips*, the benchmark delays each reply by",
                f"{start['round trip ms']} ms, and divides the time by {start['round trip ms']}",
                "ms. The benchmark does not delay the opening of a TCP connection, so *Round",
                "trips* does not include it.",
                "*New nodes* are nodes that have not loaded the scripts of quorlock",
                "yet. *Plain sockets* is a program that only connects to each node and sends it",
                "one PING.",
            ),
            table(["", "loopback", "round trips", "round trips, new nodes"], first),
        ]
    )


def _waiting() -> str:
    return (
        "## Under contention\n\n`make bench-waiting` measures the cost of waiting, the duration of"
        " hand-overs, and fairness. For the results, see [Waiting](waiting.md)."
    )
