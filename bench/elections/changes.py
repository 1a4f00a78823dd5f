"""Two candidates change roles again and again, and a third process observes the leader."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from nodes import listeners
from waiting import wait_until

import quorlock
from bench.contender import Process
from bench.group import Group
from bench.progress import progress
from bench.settings import PATIENCE, pick

KINDS = ("hand-over", "release", "crash", "observer")
CHANGES = pick(100, 3)
"""How often a leader hands over, and how often one releases."""
CRASHES = pick(20, 1)
TTL = 3.0
PROGRAM = str(Path(__file__).with_name("candidate.py"))
RESOURCE = "leader"


class Observer:
    """Notes when it learns of each leader, by its fence."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._seen: dict[int, int] = {}
        self._client = quorlock.Client(urls)
        threading.Thread(target=self._observe, daemon=True).start()

    def _observe(self) -> None:
        for leader in self._client.watch(RESOURCE):
            self._seen[leader.fence] = time.time_ns()

    def delay(self, elected: dict[str, Any]) -> float:
        """Returns the milliseconds from the election until the observer has learnt of it."""
        fence = elected["fence"]
        wait_until(lambda: fence in self._seen)
        return milliseconds(elected["elected"], self._seen[fence])


def milliseconds(since: int, until: int) -> float:
    return (until - since) / 1e6


def start(name: str, urls: Sequence[str]) -> Process:
    return Process([sys.executable, PROGRAM, name, RESOURCE, str(TTL), *urls], {})


def campaign(process: Process, group: Group, name: str) -> None:
    """Lets a process campaign, and waits until it can be elected or handed over to."""
    process.ask({"campaign": True}, PATIENCE)
    wait_until(
        lambda: all(group.queued(RESOURCE)) and all(listeners(group.servers, RESOURCE, name))
    )


def of(kind: str) -> list[float]:
    """Returns the times of one kind in milliseconds."""
    return _times()[kind]


@cache
def _times() -> dict[str, list[float]]:
    """Measures all kinds in one run."""
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with ExitStack() as stack:
        group = Group(stack)
        observer = Observer(group.urls)
        leader, other = "one", "two"
        processes = {name: start(name, group.urls) for name in (leader, other)}
        processes[leader].ask({"campaign": True}, PATIENCE)
        processes[leader].receive(PATIENCE)
        # Hand-overs and releases take turns.
        plan = ["hand-over", "release"] * CHANGES + ["crash"] * CRASHES
        for number, kind in enumerate(plan, 1):
            progress(f"change of leader {number} of {len(plan)}")
            campaign(processes[other], group, other)
            if kind == "crash":
                time.sleep(random.uniform(0, TTL))
                ended = {"ended": time.time_ns()}
                processes[leader].kill()
                processes[leader] = start(leader, group.urls)
            else:
                order = {"hand over to": other} if kind == "hand-over" else {"release": True}
                ended = processes[leader].ask(order, PATIENCE)
            elected = processes[other].receive(PATIENCE)
            found[kind].append(milliseconds(ended["ended"], elected["elected"]))
            if kind == "hand-over":
                assert ended["taken"], "the successor has not taken over"
            found["observer"].append(observer.delay(elected))
            leader, other = other, leader
        for process in processes.values():
            process.kill()
    return found
