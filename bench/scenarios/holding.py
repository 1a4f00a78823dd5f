"""The cost of holding leases: memory, CPU and requests.

A holder is a process that is started with the URLs of the nodes. It renews its leases, and answers
each line of its standard input:

- `{"hold": n, "ttl": s}`: acquires n leases, then answers `{"seconds": elapsed time}`, and also
  `"heap": bytes` with the growth of its heap if it can measure that;
- `{"rest": s}`: waits for s seconds, then answers `{"seconds": elapsed time, "cpu": CPU seconds,
  "valid": whether all leases are still valid}`;
- anything else: answers `{}` immediately.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from contender import Process
from figures import ASYNCIO, NODE, RUST
from group import Group
from parameters import HERE, HOLD, NODES, PROGRAMS
from progress import progress

HOLDERS: Mapping[str, Sequence[str]] = {
    RUST: [f"{PROGRAMS}/rust-hold"],
    ASYNCIO: [sys.executable, f"{HERE}/clients/hold.py"],
    NODE: ["node", "--expose-gc", f"{HERE}/clients/hold.js"],
}
FOR_MEMORY = 10_000
"""The number of leases for which memory is measured: so many that other memory is negligible."""
PATIENCE = 60.0
"""Seconds within which all leases must be acquired."""


@dataclass(frozen=True)
class Stay:
    """How many leases are held, with which ttl, and for how long."""

    leases: int
    ttl: float
    seconds: float


LONG = Stay(1000, 10.0, HOLD)
SHORT = [Stay(1, 0.05, 2.0), Stay(1, 10.0, HOLD)]
"""Measured only in Python. They show how often requests are sent for a single lease."""


def measure_memory() -> dict[str, dict[str, float]]:
    """Returns the bytes per held lease: of the process, and of the heap where it is measured."""
    progress(f"memory of {FOR_MEMORY} leases")
    return {name: _memory(command) for name, command in HOLDERS.items()}


def _memory(command: Sequence[str]) -> dict[str, float]:
    with ExitStack() as stack:
        holder = _start(stack, command, Group(stack))
        before = resident(holder.pid)
        answer = holder.ask({"hold": FOR_MEMORY, "ttl": 10.0}, PATIENCE)
        figures = {"resident": (resident(holder.pid) - before) / FOR_MEMORY}
        if "heap" in answer:
            figures["heap"] = answer["heap"] / FOR_MEMORY
        if not holder.ask({"rest": 0.0})["valid"]:
            raise SystemExit("a lease was lost")
        return figures


def measure_upkeep() -> list[dict[str, object]]:
    """Measures all holders concurrently, since each of them uses little CPU."""
    stays = [(name, LONG) for name in HOLDERS]
    stays += [(ASYNCIO, stay) for stay in SHORT]
    # Read the answers in the order in which the holders finish.
    stays.sort(key=lambda each: each[1].seconds)
    with ExitStack() as stack:
        progress("holding leases: starting")
        held = [Held(stack, name, stay) for name, stay in stays]
        progress(f"holding leases for {HOLD:g} s")
        for each in held:
            each.begin()
        return [each.end() for each in held]


class Held:
    """A process that holds leases, with its own nodes."""

    def __init__(self, stack: ExitStack, name: str, stay: Stay) -> None:
        self._name = name
        self._stay = stay
        self._group = Group(stack)
        self._holder = _start(stack, HOLDERS[name], self._group)
        self._holder.ask({"hold": stay.leases, "ttl": stay.ttl}, PATIENCE)

    def begin(self) -> None:
        self._servers, self._requests = self._group.cpu(), self._group.meters[0].scripts()
        self._holder.send({"rest": self._stay.seconds})

    def end(self) -> dict[str, object]:
        answer = self._holder.receive(self._stay.seconds + PATIENCE)
        if not answer["valid"]:
            raise SystemExit(f"{self._name}: a lease was lost")
        seconds = answer["seconds"]
        requests = self._group.meters[0].scripts() - self._requests
        return {
            "name": self._name,
            "leases": self._stay.leases,
            "ttl": self._stay.ttl,
            "seconds": seconds,
            "requests per node": requests,
            "one by one": self._stay.leases * seconds / (self._stay.ttl / 3),
            "client cpu %": answer["cpu"] / seconds * 100,
            "server cpu %": (self._group.cpu() - self._servers) / NODES / seconds * 100,
        }


def _start(stack: ExitStack, command: Sequence[str], group: Group) -> Process:
    holder = Process([*command, *group.urls], {})
    stack.callback(holder.close)
    holder.ask({}, PATIENCE)
    return holder


def resident(pid: int) -> int:
    """Returns the resident memory of the process in bytes."""
    told = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(pid)], check=True, stdout=subprocess.PIPE, text=True
    )
    return int(told.stdout) * 1024
