"""Generates the section on shared locks of `docs/performance.md` from the results of one run."""

from __future__ import annotations

from typing import Any

from markdown import micros, placed, table


def section(results: dict[str, Any]) -> str:
    machine = results["machine"]
    return "\n\n".join(
        [
            "## Shared locks",
            "`make bench-shared` compares the cost of a shared lock with the cost of an exclusive"
            " lock. For the method, see [bench/shared](../bench/shared/README.md).",
            _alone(results["alone"]),
            _together(results["together"]),
            _phases(results["phases"]),
            f"The figures in this section were measured on {results['date']} at commit"
            f" {machine['commit']}, on a machine with {machine['CPUs']} CPUs"
            f" ({machine['processor']}, {machine['server']})."
            f" {placed(results['placement'])}.",
        ]
    )


def _alone(alone: dict[str, dict[str, Any]]) -> str:
    """The cost of one cycle at a time."""
    rows = []
    for nodes, figures in alone.items():
        for kinds in (("exclusive", "shared"), ("redisson write", "redisson read")):
            if all(kind in figures and "median" in figures[kind] for kind in kinds):
                exclusive, shared = (figures[kind]["median"] for kind in kinds)
                name = "Redisson" if "redisson" in kinds[0] else "**quorlock Rust (async)**"
                row = [micros(exclusive), micros(shared), f"{shared / exclusive:.2f} times"]
                rows.append([name, nodes, *row])
    return table(["one cycle at a time", "nodes", "exclusive", "shared", "ratio"], rows)


def _together(figures: dict[str, Any]) -> str:
    """The throughput of many readers of one resource."""
    exclusive, readers = figures["exclusive"], figures["readers"]
    rows = [
        [
            name,
            f"{each['rate']:,.0f}",
            f"{each['scripts']:.2f}",
            micros(each["server cpu per node"]),
        ]
        for name, each in (
            ("1,000 exclusive locks of 1,000 resources", exclusive),
            ("1,000 shared locks of one resource", readers),
        )
    ]
    columns = ["1,000 loops", "cycles per second", "scripts per node", "CPU time per node"]
    return (
        f"{table(columns, rows)}\n\nEach loop in the table above runs one cycle after another."
        " With shared locks, the throughput of the 1,000 loops is"
        f" {readers['rate'] / exclusive['rate']:.2f} times the throughput with exclusive locks. In"
        " both cases, all five servers share one CPU, which limits the throughput."
    )


def _phases(phases: dict[str, dict[str, Any]]) -> str:
    """How long a writer waits among readers."""
    rows = []
    for name, each in phases.items():
        got = each["median wait ms"] is not None
        rows.append(
            [
                f"**{name}**" if "quorlock" in name else name[0].upper() + name[1:],
                f"{each['writes'] - each['failed writes']} of {each['writes']}",
                f"{each['median wait ms']:,.0f} ms" if got else "",
                f"{each['longest wait ms']:,.0f} ms" if got else "",
                f"{each['most later readers']:,}" if got else "",
                f"{each['reads per second']:,.0f}",
            ]
        )
    columns = ["a writer among 64 readers", "granted within 10 s", "median wait", "longest wait"]
    return (
        "In the next table, 64 readers repeatedly hold one resource for 10 to 30 ms, and a writer"
        " tries to lock the resource exclusively. With quorlock, the writer waits for the"
        " readers that asked for the lock earlier than the writer. *Later readers* are readers that"
        " asked for the lock after the writer asked for it, but got it first. With"
        " quorlock, a reader can overtake a waiting writer only while the writer's first request is"
        " in progress."
        "\n\n" + table([*columns, "most later readers", "reads per second"], rows)
    )
