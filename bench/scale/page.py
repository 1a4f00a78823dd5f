"""Generates the section on scale of `docs/performance.md` from the results of one run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from figures import RUST
from markdown import micros, name, placed, table

Results = dict[str, Any]


def section(results: Results) -> str:
    return "\n\n".join(
        [
            _introduction(results),
            _held(results["held"]),
            _distinct(results["distinct"]),
            _processes(results["processes"]),
            _resources(results["resources"]),
            _nodes(results["nodes"]),
        ]
    )


def _introduction(results: Results) -> str:
    machine = results["machine"]
    return (
        "## Scale\n\n`make bench-scale` measures how the cost of locks grows with the number of"
        " leases, resources, processes and nodes. In the pictures of this section, a flat curve"
        " means that the cost per lease, resource, process or node is constant. For the method, see"
        " [bench/scale](../bench/scale/README.md).\n\n"
        f"The figures in this section were measured on {results['date']} at commit"
        f" {machine['commit']}, on a machine with {machine['CPUs']} CPUs ({machine['processor']},"
        f" {machine['server']})."
        f" {placed(results['placement'])}."
    )


def spread(values: Iterable[float]) -> str:
    """Returns how much the values differ, as words."""
    known = list(values)
    low, high = min(known), max(known)
    return f"a factor of {high / low:.2f}" if low > 0 else "an unknown factor"


def _held(rows: Sequence[Results]) -> str:
    own = [each for each in rows if each["name"] == RUST]
    cells = [
        [
            f"{name(each['name'])}, {each['leases']:,}",
            f"{each['leases'] / each['seconds to acquire']:,.0f}",
            f"{each['client bytes']:,.0f}",
            f"{each['server bytes']:,.0f}",
            _small(each["client cpu"]),
            _small(each["server cpu"]),
        ]
        for each in rows
    ]
    columns = ["leases", "acquired/s", "bytes", "bytes on a server", "CPU", "CPU of a server"]
    return "\n\n".join(
        [
            "### Held leases at scale",
            "One process acquired leases with a ttl of 10 s, and then only renewed them. All leases"
            " were still valid at the end of the measurement. *Bytes* is the client's memory per"
            " lease. *CPU* is the CPU time that the client uses for each lease per second.",
            "![Cost of a held lease](pictures/performance-scale-held.svg)",
            table(columns, cells),
            f"For {RUST} with {_range(each['leases'] for each in own)} leases, the client's CPU"
            f" time per lease varies by {spread(each['client cpu'] for each in own)}, and a"
            f" server's CPU time per lease by {spread(each['server cpu'] for each in own)}. The"
            f" memory per lease varies by {spread(each['client bytes'] for each in own)} in the"
            f" client, and by {spread(each['server bytes'] for each in own)} on a server.",
        ]
    )


def _small(value: float) -> str:
    return f"{value:.2f} µs"


def _range(sizes: Iterable[int]) -> str:
    known = list(sizes)
    return f"{known[0]:,} to {known[-1]:,}"


def _distinct(samples: Sequence[Results]) -> str:
    tenths = [samples[index] for index in range(9, len(samples), 10)]
    cells = [
        [
            f"{each['resources']:,}",
            f"{each['elapsed']:.0f} s",
            f"{each['rate']:,.0f}",
            _megabytes(each["client bytes"]),
            _megabytes(each["server bytes"]),
            f"{each['keys']:,}",
        ]
        for each in tenths
    ]
    half = samples[len(samples) // 2 :]
    growth = half[-1]["client bytes"] - half[0]["client bytes"]
    change = f"{'grew' if growth >= 0 else 'shrank'} by {_megabytes(abs(growth))}"
    peak = max(samples, key=lambda each: each["server bytes"])
    columns = ["resources", "time", "cycles/s", "client", "server", "keys on the server"]
    return "\n\n".join(
        [
            "### Distinct resources",
            "One process locks and releases a new resource in each cycle, with 64 cycles in flight"
            " on five nodes. A server keeps the fence counter of a resource for 70 s after a client"
            " last locked the resource. Therefore, the memory of a server grows for at least the"
            " first 70 s. *Server* is the memory of the server that uses the most memory.",
            "![Rate and memory over time](pictures/performance-scale-distinct.svg)",
            table(columns, cells),
            "In the second half of the measurement, the memory of the client"
            f" {change}. The most memory that a server used was"
            f" {_megabytes(peak['server bytes'])}, with {peak['keys']:,} keys. At the end of the"
            " measurement, no server used more than"
            f" {_megabytes(samples[-1]['server bytes'])}. Redis deletes expired"
            " keys with a delay, so a server can store more keys than it still needs. Deleting"
            " expired keys takes CPU time. All servers together used"
            f" {micros(_mean(samples[: len(samples) // 2]))} of CPU time per cycle in the first"
            f" half of the measurement, and {micros(_mean(samples[-len(samples) // 10 :]))} in the"
            " last tenth of the measurement, when Redis deleted the most keys.",
        ]
    )


def _mean(samples: Sequence[Results]) -> float:
    costs: list[float] = [each["server cpu"] for each in samples]
    return sum(costs) / len(costs)


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"


def _processes(rows: Sequence[Results]) -> str:
    idle = [
        [
            f"{each['processes']:,}",
            f"{each['connections']:,}",
            f"{each['connections, waiting']:,}",
            f"{each['client bytes'] / 1e3:,.0f} kB",
            f"{each['server bytes'] / 1e3:,.0f} kB",
            f"{each['idle client cpu']:,.0f} µs",
            f"{each['idle server cpu']:,.1f} µs",
        ]
        for each in rows
    ]
    hand_over = [
        [
            f"{each['processes']:,}",
            f"{each['hand-over ms']:.2f} ms",
            f"{each['median hand-over ms']:.2f} ms",
            f"{each['longest hand-over ms']:.1f} ms",
            f"{each['scripts']:.1f}",
            micros(each["server cpu"]),
            f"{each['waiting server cpu']:.1f} %",
        ]
        for each in rows
    ]
    return "\n\n".join(
        [
            "### Processes",
            "In this measurement, each process has one client, which uses five nodes. *Connections*"
            " is the number of connections to one node while all processes are idle. *Waiting* is"
            " the number of connections to one node while all processes wait for a lock. *Memory*"
            " is the memory of one client process. Memory that several processes share is divided"
            " equally among them. *Memory on a server* is the memory that a server"
            " uses for each process. *Idle CPU* is the CPU time that each process uses per second"
            " while all processes are idle. *Idle CPU of a server* is the CPU time that a server"
            " uses for each process per second, minus the CPU time that the server uses without"
            " any client. The result can be slightly negative.",
            "![Cost of many processes](pictures/performance-scale-processes.svg)",
            table(
                [
                    "processes",
                    "connections",
                    "waiting",
                    "memory",
                    "memory on a server",
                    "idle CPU",
                    "idle CPU of a server",
                ],
                idle,
            ),
            "In the next table, all processes wait for one lock. Each process gets the lock once,"
            " and releases it immediately. *Hand-over* is the average time from the moment"
            " when one process gets the lock until the next process gets it. *Requests* is the"
            " number of requests to one node per hand-over. *CPU of a server* is the CPU time of"
            " one server per hand-over. *CPU while waiting* is the fraction of a CPU core that a"
            " server uses while all processes wait.",
            table(
                [
                    "processes",
                    "hand-over",
                    "median",
                    "longest",
                    "requests",
                    "CPU of a server",
                    "CPU while waiting",
                ],
                hand_over,
            ),
            f"With {_range(each['processes'] for each in rows)} processes, the average hand-over"
            f" time varies by {spread(each['hand-over ms'] for each in rows)}.",
        ]
    )


def _resources(summaries: Results) -> str:
    good = [(int(count), one) for count, one in summaries.items() if "median" in one]
    cells = [
        [
            f"{count}",
            micros(one["median"]),
            micros(one["median"] / count),
            micros(one["client cpu"]),
            micros(one["server cpu per node"]),
            f"{one['server cpu per node'] / count:.1f} µs",
        ]
        for count, one in good
    ]
    columns = [
        "resources",
        "cycle",
        "cycle per resource",
        "CPU",
        "CPU of a server",
        "CPU of a server per resource",
    ]
    (first, fewest), (last, most) = good[0], good[-1]
    return "\n\n".join(
        [
            "### Resources in one lock",
            "One client runs one cycle at a time on five nodes. Each cycle acquires and releases"
            " one lock, which covers one or more resources. *Cycle per resource* is the time of a"
            " cycle divided by the number of resources. *CPU of a server per resource* is the CPU"
            " time of a server per cycle divided by the number of resources.",
            "![Cost of a resource](pictures/performance-scale-resources.svg)",
            table(columns, cells),
            f"A cycle with {last} resources takes {most['median'] / fewest['median']:.1f} times as"
            f" long as a cycle with {first} resource, and uses"
            f" {most['server cpu per node'] / fewest['server cpu per node']:.1f} times as much CPU"
            " time on a server.",
        ]
    )


def _nodes(summaries: Results) -> str:
    good = [(int(count), one) for count, one in summaries.items() if "median" in one]
    cells = [
        [
            f"{count}",
            micros(one["median"]),
            micros(one["median"] / count),
            f"{one['client cpu'] / count:.1f} µs",
            f"{one['server cpu per node']:.1f} µs",
        ]
        for count, one in good
    ]
    columns = ["nodes", "cycle", "per node", "CPU per node", "CPU of a server"]
    return "\n\n".join(
        [
            "### Nodes",
            "In this measurement, one client runs one cycle at a time. All servers share the same"
            " CPUs, so the time of a cycle includes the time for which servers wait for a CPU.",
            "![Cost of a node](pictures/performance-scale-nodes.svg)",
            table(columns, cells),
            f"With {_range(count for count, _ in good)} nodes, the CPU time of one server per cycle"
            f" varies by {spread(one['server cpu per node'] for _, one in good)}.",
        ]
    )
