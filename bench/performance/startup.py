"""The startup cost of a process: the import, connecting, and the first lock."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from time import perf_counter

from bench.delay import slow_urls
from bench.group import Group
from bench.names import NODE, PYTHON, RUST
from bench.progress import progress
from bench.settings import HERE, NODES, PROGRAMS, ROOT, ROUNDS

ROUND_TRIP_MILLISECONDS = 20
"""The round-trip time of the slow network, by which round trips are counted: long compared with
everything else."""

STARTS = 2 * ROUNDS
"""The number of processes of each kind whose start is measured."""

Command = Sequence[str]

_CLIENTS = HERE / "clients"
_MODULE = ["node", "--input-type=module", "-e"]
IMPORTS: Mapping[str, tuple[Command, Command]] = {
    "Python": ([sys.executable, "-c", "pass"], [sys.executable, "-c", "import quorlock"]),
    "Node.js": ([*_MODULE, ""], [*_MODULE, "import 'quorlock'"]),
}
"""Commands that start an interpreter without and with quorlock."""

FIRST: Mapping[str, Command] = {
    "plain sockets": [sys.executable, f"{_CLIENTS}/first_plain.py"],
    RUST: [f"{PROGRAMS}/rust-first"],
    PYTHON: [sys.executable, f"{_CLIENTS}/first.py"],
    NODE: ["node", f"{_CLIENTS}/first.js"],
}
"""Programs that print the time until they hold their first lock."""


def measure() -> dict[str, object]:
    return {
        "import": {name: _import(name, *commands) for name, commands in IMPORTS.items()},
        "first lock": _first_locks(),
        "round trip ms": ROUND_TRIP_MILLISECONDS,
    }


def _import(name: str, bare: Command, importing: Command) -> dict[str, float]:
    """Returns median times in milliseconds."""
    times: dict[str, list[float]] = {"bare": [], "importing": []}
    for number in range(2 * STARTS):
        progress(f"import in {name}: {number + 1} of {2 * STARTS}")
        times["bare"].append(_run(bare))
        times["importing"].append(_run(importing))
    medians = {kind: median(values) for kind, values in times.items()}
    return {**medians, "above bare": medians["importing"] - medians["bare"]}


def _run(command: Command) -> float:
    start = perf_counter()
    subprocess.run(command, check=True, cwd=ROOT)
    return (perf_counter() - start) * 1e3


def _first_locks() -> dict[str, dict[str, float]]:
    """Returns the time on loopback in milliseconds, and the round trips on a slow network."""
    with ExitStack() as stack:
        group = Group(stack)
        slow = slow_urls(stack, group, range(NODES), ROUND_TRIP_MILLISECONDS)

        def forget() -> None:
            for server in group.servers:
                server.command("SCRIPT", "FLUSH")

        def round_trips(
            name: str, command: Command, prepare: Callable[[], object] = lambda: None
        ) -> float:
            return _first(name, command, slow, prepare) / ROUND_TRIP_MILLISECONDS

        return {
            name: {
                "loopback ms": _first(name, command, group.servers.urls),
                "round trips": round_trips(name, command),
                "round trips, new nodes": round_trips(name, command, forget),
            }
            for name, command in FIRST.items()
        }


def _first(
    name: str,
    command: Command,
    urls: Sequence[str],
    prepare: Callable[[], object] = lambda: None,
) -> float:
    """Returns the median time until the first lock is held in a new process, in milliseconds."""
    times = []
    for number in range(STARTS):
        progress(f"first lock of {name}: {number + 1} of {STARTS}")
        prepare()
        printed = subprocess.check_output([*command, *urls], cwd=ROOT, text=True)
        times.append(float(printed) / 1e3)
    return median(times)
