"""Which CPUs servers and clients run on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from servers import Servers

PIN = os.environ.get("PIN", "on") != "off"

# Asked before anybody is placed: this process gets the clients' half.
_CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
_MIDDLE = len(_CPUS) // 2


def place(groups: Iterable[Servers]) -> str:
    """Gives servers and clients CPUs of their own; returns what to say about it.

    Otherwise the scheduler chooses, differently for each contender and by what else runs: on one
    CPU nobody has to be woken on another, which costs more than all the rest.
    """
    if not PIN or len(_CPUS) < 2:
        return "placed by the scheduler"
    for group in groups:
        for server in group:
            os.sched_setaffinity(server.pid, _CPUS[:_MIDDLE])
    os.sched_setaffinity(0, _CPUS[_MIDDLE:])  # inherited by the contenders
    return f"servers on CPU {_CPUS[:_MIDDLE]}, clients on CPU {_CPUS[_MIDDLE:]}"


@contextmanager
def among_servers() -> Iterator[None]:
    """Processes that are started meanwhile run on the CPUs of the servers."""
    if PIN and len(_CPUS) >= 2:
        os.sched_setaffinity(0, _CPUS[:_MIDDLE])
    yield
    if PIN and len(_CPUS) >= 2:
        os.sched_setaffinity(0, _CPUS[_MIDDLE:])
