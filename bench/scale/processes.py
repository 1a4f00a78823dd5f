"""Many processes with one client each: connections, memory, idle CPU, and hand-over of one lock.

The program `rust-waiter` is started with the URLs of the nodes. It connects, and answers each line
of its standard input:

- `{"hold": resource}`: acquires the resource, and answers `{}`;
- `{"take": resource}`: acquires and releases the resource, then answers `{"acquired": ns}` by the
  clock that all processes share;
- `{"rest": s}`: waits for s seconds, then answers `{"seconds": elapsed time, "cpu": CPU seconds}`;
- anything else: releases what it holds, and answers `{}`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from statistics import fmean, median

from waiting import wait_until

from bench.contender import Process, ask_all, start_all
from bench.group import Group
from bench.machine import allow_files
from bench.memory import proportional
from bench.progress import progress
from bench.settings import PROGRAMS, pick

PROCESSES = pick([1, 10, 100, 300, 1000], [1, 10])
REST = pick(10.0, 1.0)
"""Seconds for which idle or waiting processes are measured."""
PATIENCE = 300.0
"""Seconds within which a process must answer."""
BATCH = 20
"""Processes that start, or begin to wait, at the same time. More of them share a CPU so long that
they would report an outage of the nodes."""
RESOURCE = "wanted by all"


def measure() -> list[dict[str, float]]:
    # Three files for each process here, and two connections for each of them on every server.
    allow_files(4 * max(PROCESSES))
    return [_measure(count) for count in PROCESSES]


def _measure(count: int) -> dict[str, float]:
    with ExitStack() as stack:
        group = Group(stack)
        holder = _start(stack, group, 1)[0]
        unused, empty = _share(group, REST), fmean(meter.memory() for meter in group.meters)
        progress(f"{count:,} processes: starting")
        waiters = _start(stack, group, count)
        progress(f"{count:,} processes: idle")
        idle = _idle(waiters, group)
        figures = {
            "processes": count,
            "connections": max(meter.connections() for meter in group.meters) - 1,
            "client bytes": fmean(proportional(waiter.pid) for waiter in waiters),
            "server bytes": (fmean(meter.memory() for meter in group.meters) - empty) / count,
            "idle client cpu": idle[0] * 1e6,
            "idle server cpu": (idle[1] - unused) / count * 1e6,
        }
        progress(f"{count:,} processes: waiting")
        return figures | _hand_over(holder, waiters, group)


def _start(stack: ExitStack, group: Group, count: int) -> list[Process]:
    command = [f"{PROGRAMS}/rust-waiter", *group.urls]
    processes: list[Process] = []
    while len(processes) < count:
        batch = start_all(stack, [command] * min(BATCH, count - len(processes)), {}, PATIENCE)
        ask_all(batch, {}, PATIENCE)
        processes += batch
    return processes


def _idle(waiters: Sequence[Process], group: Group) -> tuple[float, float]:
    """Returns the share of a core that an average idle process and an average server uses."""
    before = group.cpu()
    answers = ask_all(waiters, {"rest": REST}, PATIENCE)
    servers = (group.cpu() - before) / len(group.meters) / REST
    return fmean(answer["cpu"] / answer["seconds"] for answer in answers), servers


def _hand_over(holder: Process, waiters: Sequence[Process], group: Group) -> dict[str, float]:
    """Lets each process have the lock once, after all of them have waited for it."""
    holder.ask({"hold": RESOURCE}, PATIENCE)
    for number, waiter in enumerate(waiters, 1):
        waiter.send({"take": RESOURCE})
        if number % BATCH == 0 or number == len(waiters):
            _wait_for_queue(group, number)
    connections = max(meter.connections() for meter in group.meters) - 1
    waiting = _share(group, REST)
    scripts, cpu = group.meters[0].scripts(), group.cpu()
    released = time.monotonic_ns()
    holder.ask({}, PATIENCE)
    answers = [waiter.receive(PATIENCE) for waiter in waiters]
    answers.sort(key=lambda answer: answer["acquired"])
    times = [released, *(answer["acquired"] for answer in answers)]
    gaps = [(later - earlier) / 1e6 for earlier, later in pairwise(times)]
    count = len(waiters)
    return {
        "connections, waiting": connections,
        "waiting server cpu": waiting * 100,
        "hand-over ms": sum(gaps) / count,
        "median hand-over ms": median(gaps),
        "longest hand-over ms": max(gaps),
        "scripts": (group.meters[0].scripts() - scripts) / count,
        "server cpu": (group.cpu() - cpu) / len(group.meters) / count * 1e6,
    }


def _wait_for_queue(group: Group, count: int) -> None:
    wait_until(lambda: set(group.queued(RESOURCE)) == {count})


def _share(group: Group, seconds: float) -> float:
    """Returns the share of a core that an average server uses during these seconds."""
    before = group.cpu()
    time.sleep(seconds)
    return (group.cpu() - before) / len(group.meters) / seconds
