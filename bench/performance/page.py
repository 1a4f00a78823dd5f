"""Formats the results of the topic for `docs/performance.md`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import Any

from bench.goals import ratio
from bench.markdown import (
    Cell,
    Row,
    bold,
    failure,
    goal_table,
    in_micros,
    micros,
    name,
    named,
    table,
    table_of,
)
from bench.names import ASYNCIO, FLOOR, FLOOR_PLAIN, NODE, PYTHON, RSLOCK, RUST
from bench.performance.figures import Figures
from bench.performance.goals import goals

Summaries = Mapping[str, Row]


def values(results: dict[str, Any]) -> dict[str, str]:
    figures, start = Figures(results), results["start"]
    return {
        "conditions": _conditions(results),
        "one_at_a_time": _one_at_a_time(figures),
        "by_nodes": _by_nodes(results["one at a time"]),
        "rates": _rates(results["in flight"]),
        "in_flight": _in_flight("64 in flight", results["in flight"]["64"]),
        "one_node": _in_flight("64 in flight, one node", results["in flight, one node"]),
        "servers": _servers(figures),
        "contention": _contention(results["contention"]),
        "round_trips": _round_trips(results["round trips"]),
        "faults": _faults(figures),
        "held": _held(results["held"]),
        "memory": _memory(results["memory"]),
        "imports": _imports(start["import"]),
        "first_locks": _first_locks(start["first lock"]),
        "round_trip": f"{start['round trip ms']} ms",
        "goals": goal_table(goals(figures)),
    }


def readme(results: dict[str, Any]) -> dict[str, str]:
    """Returns the values of the section of the README."""
    figures = Figures(results)
    names = {"Rust": RUST, "Python": PYTHON, "Python with asyncio": ASYNCIO, "Node.js": NODE}
    *others, last = (f"{micros(figures.latency(name))} in {short}" for short, name in names.items())
    frozen = [figures.times_healthy(name, "two frozen") for name in names.values()]
    known = [times for times in frozen if times is not None]
    return {
        "latencies": f"{', '.join(others)} and {last}",
        "floor": micros(figures.latency(FLOOR)),
        **{
            form: _number(ratio(figures.fastest_peer(form), figures.latency(name)), ".1f")
            for form, name in {"sync": PYTHON, "async": ASYNCIO}.items()
        },
        "rate": _number(figures.rate(ASYNCIO, 64), ",.0f"),
        "threads_rate": _number(figures.rate(PYTHON, 8), ",.0f"),
        "frozen": f"{min(known):.2f} to {max(known):.2f}" if known else _number(None, ""),
    }


def _number(value: float | None, style: str) -> str:
    return "an unknown number of" if value is None else format(value, style)


def _conditions(results: dict[str, Any]) -> str:
    machine = results["machine"]
    languages = (f"{language} {version}" for language, version in machine["languages"].items())
    conditions = {
        "date": results["date"],
        "quorlock": f"commit {machine['commit']}",
        "machine": f"{machine['processor']}, {machine['CPUs']} CPUs, {machine['system']}",
        "placement": results["placement"],
        "servers": machine["server"],
        "languages": ", ".join(languages),
        "other libraries": "The versions are pinned in [`bench/peers`](../bench/peers).",
        "rounds": f"{results['rounds']} rounds of up to {results['cycles']} cycles per library",
    }
    if results["missing"]:
        conditions["not installed in this run"] = ", ".join(results["missing"])
    # Texts are left-aligned.
    return table(["condition", "value"], conditions.items()).replace("---:", "---")


def _one_at_a_time(figures: Figures) -> str:
    floor, plain = figures.latency(FLOOR), figures.latency(FLOOR_PLAIN)
    columns: dict[str, Cell] = {
        "five nodes": _noted,
        "median": in_micros("median"),
        "quartiles": "{low:,.0f} to {high:,.0f} µs",
        "p99": in_micros("p99"),
        "times floor": lambda each: _times(each["median"], floor),
        "times plain floor": lambda each: _times(each["median"], plain),
        "CPU": in_micros("client cpu"),
    }
    return table_of(columns, _best_first(figures.all["one at a time"]["5"], "median"))


def _in_flight(title: str, summaries: Summaries) -> str:
    columns: dict[str, Cell] = {
        title: _noted,
        "cycles/s": "{rate:,.0f}",
        "median": in_micros("median"),
        "p99": in_micros("p99"),
        "CPU": in_micros("client cpu"),
    }
    return table_of(columns, _best_first(summaries, "rate", -1))


def _best_first(summaries: Summaries, key: str, sign: int = 1) -> list[Row]:
    """Returns the rows in order. Contenders without figures come last."""
    return sorted(named(summaries), key=lambda row: sign * row[key] if key in row else inf)


def _noted(row: Row) -> str:
    failed = row.get("failed turns")
    return f"{name(row)} (failed in {failed} turns)" if failed else name(row)


def _by_nodes(by_count: Mapping[str, Summaries]) -> str:
    """Returns a table in the order of the table for five nodes."""
    medians = {
        contender: summary["median"]
        for count in ("1", "5")
        for contender, summary in by_count[count].items()
        if "median" in summary
    }
    order = sorted(medians, key=lambda each: (each not in by_count["5"], medians[each]))
    counts = sorted(by_count, key=int)
    return _matrix(order, {f"N = {count}": by_count[count] for count in counts}, _median)


def _rates(levels: Mapping[str, Summaries]) -> str:
    """Returns a table with those first that have the highest rate at any level."""
    best: dict[str, float] = {}
    for summaries in levels.values():
        for contender, summary in summaries.items():
            best[contender] = max(best.get(contender, 0.0), summary.get("rate", 0.0))
    order = sorted(best, key=best.__getitem__, reverse=True)
    columns = {f"{int(level):,} in flight": each for level, each in levels.items()}
    return _matrix(order, columns, lambda summary: f"{summary['rate']:,.0f}")


def _matrix(
    order: Iterable[str], columns: Mapping[str, Summaries], cell: Callable[[Row], str]
) -> str:
    """Returns a table with a row for each contender, and a column for each setting."""

    def text(summary: Row | None) -> str:
        if summary is None:
            return "-"
        return failure(summary) if "failure" in summary else cell(summary)

    rows = [
        [bold(each), *(text(summaries.get(each)) for summaries in columns.values())]
        for each in order
    ]
    return table(["", *columns], rows)


def _median(summary: Row) -> str:
    return micros(summary["median"])


def _times(figure: float | None, base: float | None) -> str:
    times = ratio(figure, base)
    return "-" if times is None else f"{times:.2f}"


def _node_cpu(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.1f} µs"


def _servers(figures: Figures) -> str:
    """Returns a table with those first that need the least CPU time one at a time."""
    one, many = (
        {each: figures.node_cpu(each, level) for each in figures.all["one at a time"]["5"]}
        for level in (None, 64)
    )
    rows = [
        [
            bold(each),
            *(
                text
                for level in (one, many)
                for text in (_node_cpu(level[each]), _times(level[each], level.get(RSLOCK)))
            ),
        ]
        for each in sorted(one, key=lambda each: one[each] or inf)
    ]
    columns = ["five nodes", "one at a time", "times rslock", "64 in flight", "times rslock"]
    return table(columns, rows)


def _contention(summaries: Mapping[str, Summaries]) -> str:
    def rows() -> Iterator[list[str]]:
        for each in summaries["before"]:
            before, after = (
                summaries[kind][each].get("server cpu per node") for kind in ("before", "after")
            )
            row = [_node_cpu(before), _node_cpu(after), _times(after, before)]
            yield [bold(each), *row]

    return table(["", "never waited", "waited once", "ratio"], rows())


def _round_trips(by_time: Mapping[str, Summaries]) -> str:
    """Returns a table with the fastest with the shortest round trip first."""
    first, columns = next(iter(by_time.values())), [""]
    cells: dict[str, list[str]] = {
        each: [] for each in sorted(first, key=lambda each: first[each].get("median", inf))
    }
    for milliseconds, summaries in by_time.items():
        columns += [f"round trip {milliseconds} ms", "times plain floor"]
        base = summaries.get(FLOOR_PLAIN, {}).get("median")
        for each, row in cells.items():
            summary = summaries[each]
            median = failure(summary) if "failure" in summary else _median(summary)
            row += [median, _times(summary.get("median"), base)]
    return table(columns, ([bold(each), *row] for each, row in cells.items()))


def _faults(figures: Figures) -> str:
    faults = figures.all["faults"]

    def cell(contender: str, fault: str) -> str:
        summary = faults[fault]["faulty"][contender]
        if "failure" in summary:
            return failure(summary)
        times = figures.times_healthy(contender, fault)
        return _median(summary) + (f" ({times:,.2f} times)" if times else "")

    contenders = next(iter(faults.values()))["faulty"]
    rows = ([bold(each), *(cell(each, fault) for fault in faults)] for each in contenders)
    return table(["", *faults], rows)


def _held(rows: Iterable[Row]) -> str:
    columns: dict[str, Cell] = {
        "": name,
        "leases": "{leases:,}",
        "ttl": "{ttl:g} s",
        "held": "{seconds:.0f} s",
        "requests": "{requests per node:,}",
        "one by one": "{one by one:,.0f}",
        "CPU": "{client cpu %:.2f} %",
        "CPU of a server": "{server cpu %:.2f} %",
    }
    return table_of(columns, rows)


def _memory(memory: Mapping[str, Row]) -> str:
    columns: dict[str, Cell] = {
        "": name,
        "heap": lambda each: f"{each['heap']:,.0f}" if "heap" in each else "-",
        "process": "{resident:,.0f}",
    }
    return table_of(columns, named(memory))


def _imports(imports: Mapping[str, Row]) -> str:
    columns = {
        "": "{name}",
        "bare": "{bare:.1f} ms",
        "importing": "{importing:.1f} ms",
        "difference": "{above bare:.1f} ms",
    }
    return table_of(columns, named(imports))


def _first_locks(first: Mapping[str, Row]) -> str:
    columns: dict[str, Cell] = {
        "": name,
        "loopback": "{loopback ms:.1f} ms",
        "round trips": "{round trips:.2f}",
        "round trips, new nodes": "{round trips, new nodes:.2f}",
    }
    return table_of(columns, named(first))
