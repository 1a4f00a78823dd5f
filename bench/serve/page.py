"""Generates the section on the daemon of `docs/performance.md` from the results of one run."""

from __future__ import annotations

from typing import Any

from figures import RUST
from markdown import failure, micros, name, placed, table
from serve.goals import goals
from serve.settings import IN_FLIGHT, SERVE


def section(results: dict[str, Any]) -> str:
    machine = results["machine"]
    where = placed(results["placement"]).replace("the clients", "the clients and the daemon")
    return "\n\n".join(
        [
            "## Through the socket",
            "`make bench-serve` compares [`quorlock serve`](serve.md) with quorlock as a library,"
            " and with other libraries for Go and Java. In this benchmark, the client of `quorlock"
            " serve` is the Go library go-redis. For the method, see"
            " [bench/serve](../bench/serve/README.md).",
            _goals(results),
            _cycles(results["cycles"]),
            _idle(results["idle"]),
            f"The figures in this section were measured on {results['date']} at commit"
            f" {machine['commit']}, on a machine with {machine['CPUs']} CPUs"
            f" ({machine['processor']}, {machine['server']})."
            f" {where}.",
        ]
    )


def _goals(results: dict[str, Any]) -> str:
    met = {True: "yes", False: "**no**", None: "-"}
    rows = [(each.what, each.goal, each.measured, met[each.met]) for each in goals(results)]
    return "All figures in the next table are for five nodes.\n\n" + table(
        ["what is measured", "goal", "measured", "met"], rows
    )


def _cycles(cycles: dict[str, dict[str, Any]]) -> str:
    one, many = cycles["1"], cycles[str(IN_FLIGHT)]
    rows = []
    for contender, summary in one.items():
        if "median" in summary:
            times = summary["median"] / one[RUST]["median"] if "median" in one[RUST] else 0
            row = [micros(summary["median"]), f"{times:.2f}", micros(summary["p99"])]
        else:
            row = [failure(summary), "", ""]
        crowd = many[contender]
        rate = f"{crowd['rate']:,.0f}" if "rate" in crowd else failure(crowd)
        rows.append([name(contender), *row, rate])
    columns = ["five nodes", "median", "times Rust", "99th percentile", f"cycles/s, {IN_FLIGHT}"]
    return (
        f"The last column of the next table shows the throughput with {IN_FLIGHT} cycles in flight."
        f" To measure this throughput, the client in the row *{SERVE}* uses {IN_FLIGHT}"
        " connections. The other columns show measurements of one cycle at a time.\n\n"
        f"{table(columns, rows)}"
    )


def _idle(idle: dict[str, int]) -> str:
    per_connection = (idle["with"] - idle["before"]) / idle["connections"] / 1000
    return (
        f"The daemon (`quorlock serve`) uses {idle['before'] / 1e6:.1f} MB of resident memory"
        f" without connections, and {idle['with'] / 1e6:.1f} MB with {idle['connections']:,}"
        f" connections. Each connection takes {per_connection:.1f} kB of memory."
    )
