"""Assigns CPUs to servers and clients."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from servers import Servers

PIN = os.environ.get("PIN", "on") != "off"

# Read before the assignment, which limits this process to the clients' half.
_CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
_MIDDLE = len(_CPUS) // 2


def place(groups: Iterable[Servers]) -> str:
    """Assigns one half of the CPUs to the servers and the other half to clients. Returns a text
    about the assignment for the report.

    Otherwise the scheduler would place each contender differently. This would distort the results:
    waking a process on another CPU costs more than everything else in a cycle.
    """
    if not PIN or len(_CPUS) < 2:
        return "placed by the scheduler"
    for group in groups:
        for server in group:
            for thread in _threads(server.pid):
                os.sched_setaffinity(thread, _CPUS[:_MIDDLE])
    os.sched_setaffinity(0, _CPUS[_MIDDLE:])  # inherited by the contenders
    return f"servers on CPU {_CPUS[:_MIDDLE]}, clients on CPU {_CPUS[_MIDDLE:]}"


def _threads(pid: int) -> list[int]:
    """Returns the ids of the threads of a process. Linux assigns CPUs to threads."""
    tasks = Path(f"/proc/{pid}/task")
    return [int(task.name) for task in tasks.iterdir()] if tasks.exists() else [pid]


@contextmanager
def among_servers() -> Iterator[None]:
    """Processes that are started in the `with` block run on the CPUs of the servers."""
    if PIN and len(_CPUS) >= 2:
        os.sched_setaffinity(0, _CPUS[:_MIDDLE])
    yield
    if PIN and len(_CPUS) >= 2:
        os.sched_setaffinity(0, _CPUS[_MIDDLE:])


@contextmanager
def anywhere() -> Iterator[None]:
    """Processes that are started in the `with` block run on all CPUs."""
    if PIN and len(_CPUS) >= 2:
        os.sched_setaffinity(0, _CPUS)
    yield
    if PIN and len(_CPUS) >= 2:
        os.sched_setaffinity(0, _CPUS[_MIDDLE:])
