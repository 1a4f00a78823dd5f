"""The worker processes that contend for locks.

They live for the whole run, and each serves all contenders in turn. So no processes are started
during a turn, and contenders do not need processes of their own.
"""

from __future__ import annotations

import atexit
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from servers import Server

from bench.contender import Process, ask_all
from bench.settings import PATIENCE, pick
from bench.waiting import counting
from bench.waiting.contenders import WORKERS, Contender
from bench.waiting.turns import Turn, sent

COUNT = pick(32, 8)
"""The largest number of workers that any measurement needs."""
HOLD = 0.001
START_IN = 0.1
"""Seconds from a command until it starts: long enough for all workers to read it."""
LEAD = 0.25
"""Seconds for which the first client holds the lock, while all others begin to wait."""
ARRIVAL = 0.1
"""Seconds within which the others start to wait."""
WAIT_LIMIT = 4.0
"""The seconds in which all clients should get the lock once. Clients that still wait soon after
count as unfinished."""


@dataclass
class Outcome:
    """What the clients did in one measurement."""

    turns: list[Turn]
    until: int
    clients: int
    failures: int
    failure: str
    """The last one."""
    unfinished: list[tuple[int, int]]
    sent: float
    """The number of commands that clients sent, per node."""


class OpenClients:
    """Processes with open clients of one contender."""

    def __init__(
        self,
        contender: Contender,
        nodes: Sequence[Server],
        processes: Sequence[Process],
        clients: int,
    ) -> None:
        self._contender = contender
        self._nodes = nodes
        self._processes = processes
        self._clients = clients
        self.stuck: list[Process] = []

    def loop(self, resource: str, seconds: float) -> Outcome:
        """All clients acquire the lock repeatedly for this time."""
        start = time.monotonic_ns() + int(START_IN * 1e9)
        orders = [{"start": start, "hold": HOLD, "once": False}] * len(self._processes)
        return self._run(resource, start + int(seconds * 1e9), orders)

    def wait_once(self, resource: str) -> Outcome:
        """All clients acquire the lock once. The first one releases it when all others wait."""
        start = time.monotonic_ns() + int(START_IN * 1e9)
        orders: list[dict[str, Any]] = [
            {
                "start": start + int(random.uniform(ARRIVAL / 10, ARRIVAL) * 1e9),
                "hold": HOLD,
                "once": True,
            }
            for _ in self._processes
        ]
        random.choice(orders).update(start=start, hold=LEAD)
        return self._run(resource, start + int(WAIT_LIMIT * 1e9), orders)

    def _run(self, resource: str, until: int, orders: list[dict[str, Any]]) -> Outcome:
        before = counting.snapshot(self._nodes)
        for process, order in zip(self._processes, orders, strict=True):
            process.send({"run": resource, "until": until, **order})
        limit = (until - time.monotonic_ns()) / 1e9 + PATIENCE
        answers = [process.receive(limit) for process in self._processes]
        after = counting.snapshot(self._nodes)
        self.stuck = [p for p, a in zip(self._processes, answers, strict=True) if a["stuck"]]
        sends = self._contender.sends
        counts = [sent(b, a, sends) for b, a in zip(before, after, strict=True)]
        return Outcome(
            turns=[
                Turn(number * self._clients + client, *times)
                for number, answer in enumerate(answers)
                for client, *times in answer["turns"]
            ],
            until=until,
            clients=len(self._processes) * self._clients,
            failures=sum(answer["failures"] for answer in answers),
            failure=next((answer["failure"] for answer in answers if answer["failure"]), ""),
            unfinished=[(a, b) for answer in answers for a, b in answer["unfinished"]],
            sent=sum(counts) / len(counts),
        )


class Workers:
    """The processes of both languages, which run until `close`."""

    def __init__(self) -> None:
        self._all = {language: [_start(language) for _ in range(COUNT)] for language in WORKERS}
        # Wait until all have started: starting would take CPU time from the first contender.
        ask_all([process for each in self._all.values() for process in each], {"close": True})

    @contextmanager
    def opened(
        self, contender: Contender, name: str, processes: int, clients: int = 1
    ) -> Iterator[OpenClients]:
        """Opens the clients of a contender in `processes` processes, with `clients` clients each.

        `name` is part of all their keys.
        """
        nodes = counting.nodes()[: contender.nodes]
        share = processes // len(contender.languages)
        chosen = [each for language in contender.languages for each in self._all[language][:share]]
        for number, process in enumerate(chosen):
            process.send(
                {
                    "open": contender.library,
                    "urls": [node.url for node in nodes],
                    "tuned": contender.tuned,
                    "clients": clients,
                    "warm": f"{name}-warm-{number}",
                }
            )
        for process in chosen:
            process.receive(PATIENCE)
        opened = OpenClients(contender, nodes, chosen, clients)
        yield opened
        self._replace(opened.stuck)
        ask_all([process for process in chosen if process not in opened.stuck], {"close": True})
        if contender.is_peer:  # leftover keys of peers must not count for quorlock
            counting.delete(nodes, name)

    def _replace(self, stuck: Sequence[Process]) -> None:
        for language, processes in self._all.items():
            for index, process in enumerate(processes):
                if process in stuck:
                    process.kill()
                    processes[index] = _start(language)

    def close(self) -> None:
        for processes in self._all.values():
            for process in processes:
                process.kill()


def _start(language: str) -> Process:
    return Process(*WORKERS[language])


@cache
def workers() -> Workers:
    """Returns the workers of all scenarios, which run on the CPUs of the clients."""
    counting.group()
    started = Workers()
    atexit.register(started.close)
    return started
