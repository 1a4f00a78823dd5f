"""What it costs to hold leases: memory, CPU and requests.

A holder is a process, started with the nodes' URLs. It answers each line of its standard input:

- `{"hold": n, "ttl": s}`, when it holds so many leases, with `{}`, or with `{"heap": bytes}` if it
  can tell by how much its heap has grown;
- `{"rest": s}`, after so many seconds, with `{"seconds": wall time, "cpu": seconds, "valid":
  whether all leases still are}`;
- anything else at once, with `{}`.

It extends its leases.
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
"""So many leases that all else does not count."""
PATIENCE = 60.0
"""Seconds within which all are acquired."""


@dataclass(frozen=True)
class Stay:
    """How many leases are held, of which ttl, for how long."""

    leases: int
    ttl: float
    seconds: float


LONG = Stay(1000, 10.0, HOLD)
SHORT = [Stay(1, 0.05, 2.0), Stay(1, 10.0, HOLD)]
"""Only in Python: they show when requests are sent."""


def measure_memory() -> dict[str, dict[str, float]]:
    """Bytes per held lease, of the heap where it is counted, and of the process."""
    progress(f"memory of {FOR_MEMORY} leases")
    return {name: _memory(command) for name, command in HOLDERS.items()}


def _memory(command: Sequence[str]) -> dict[str, float]:
    with ExitStack() as stack:
        holder = _start(stack, command, Group(stack))
        before = _resident(holder.pid)
        answer = holder.ask({"hold": FOR_MEMORY, "ttl": 10.0}, PATIENCE)
        figures = {"resident": (_resident(holder.pid) - before) / FOR_MEMORY}
        if "heap" in answer:
            figures["heap"] = answer["heap"] / FOR_MEMORY
        if not holder.ask({"rest": 0.0})["valid"]:
            raise SystemExit("a lease was lost")
        return figures


def measure_upkeep() -> list[dict[str, object]]:
    """All side by side: they do little."""
    stays = [(name, LONG) for name in HOLDERS]
    stays += [(ASYNCIO, stay) for stay in SHORT]
    # Each is looked at when it ends.
    stays.sort(key=lambda each: each[1].seconds)
    with ExitStack() as stack:
        progress("holding leases: starting")
        held = [Held(stack, name, stay) for name, stay in stays]
        progress(f"holding leases for {HOLD:g} s")
        for each in held:
            each.begin()
        return [each.end() for each in held]


class Held:
    """Leases that are held on nodes of their own."""

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


def _resident(pid: int) -> int:
    """Bytes of memory that the process really has."""
    told = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(pid)], check=True, stdout=subprocess.PIPE, text=True
    )
    return int(told.stdout) * 1024
