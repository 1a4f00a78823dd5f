"""The worker processes that contend for locks.

They live for the whole run, and each serves all contenders in turn. So no processes are started
during a turn, and contenders do not need processes of their own.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import counting
from interop.installing import Ecosystem
from measure import Turn, sent
from servers import Server
from settings import HERE, NODE, PYTHON, Contender

HOLD = 0.001
START_IN = 0.1
"""Seconds from a command until it starts: long enough for all workers to read it."""
LIMIT = 60.0
"""Seconds after the expected time at which a worker without an answer aborts the run."""
LEAD = 0.25
"""Seconds for which the first client of a lap holds the lock, while all others start to wait."""
ARRIVAL = 0.1
"""Seconds within which the others start to wait."""
LAP_LIMIT = 4.0
"""The seconds of a lap. Clients that are still waiting soon after count as unfinished."""


class Process:
    """A program that answers each line of JSON on stdin with a line of JSON on stdout."""

    def __init__(
        self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, **(environment or {})},
        )

    def send(self, **command: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(command) + "\n")

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a contender ended by itself: {self.process.args!r}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, **command: Any) -> dict[str, Any]:
        self.send(**command)
        return receive([self])[0]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def receive(processes: Sequence[Process], seconds: float = 0.0) -> list[dict[str, Any]]:
    """Returns one answer from each process. Aborts the run if one of them hangs."""

    def kill() -> None:
        for process in processes:
            process.process.kill()

    limit = threading.Timer(seconds + LIMIT, kill)
    limit.start()
    try:
        return [process.receive() for process in processes]
    finally:
        limit.cancel()


@dataclass
class Bout:
    """The result of one fight or lap."""

    turns: list[Turn]
    until: int
    clients: int
    failures: int
    error: str
    unfinished: list[tuple[int, int]]
    stuck: bool
    sent: float
    """The number of commands that clients sent, per node."""


class Fighters:
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

    def fight(self, resource: str, seconds: float) -> Bout:
        """All clients acquire the lock repeatedly for this time."""
        start = time.monotonic_ns() + int(START_IN * 1e9)
        orders = [{"start": start, "hold": HOLD, "once": False}] * len(self._processes)
        return self._run(resource, start + int(seconds * 1e9), orders)

    def lap(self, resource: str) -> Bout:
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
        return self._run(resource, start + int(LAP_LIMIT * 1e9), orders)

    def _run(self, resource: str, until: int, orders: list[dict[str, Any]]) -> Bout:
        before = counting.snapshot(self._nodes)
        for process, order in zip(self._processes, orders, strict=True):
            process.send(run=resource, until=until, **order)
        answers = receive(self._processes, (until - time.monotonic_ns()) / 1e9)
        check(self._contender, answers, "turns")
        after = counting.snapshot(self._nodes)
        self.stuck = [p for p, a in zip(self._processes, answers, strict=True) if a["stuck"]]
        sends = self._contender.sends
        counts = [sent(b, a, sends) for b, a in zip(before, after, strict=True)]
        return Bout(
            turns=[
                Turn(number * self._clients + client, *times)
                for number, answer in enumerate(answers)
                for client, *times in answer["turns"]
            ],
            until=until,
            clients=len(self._processes) * self._clients,
            failures=sum(answer["failures"] for answer in answers),
            error=next((answer["error"] for answer in answers if answer["error"]), ""),
            unfinished=[(a, b) for answer in answers for a, b in answer["unfinished"]],
            stuck=bool(self.stuck),
            sent=sum(counts) / len(counts),
        )


class Workers:
    """The processes of both languages, which run until `close`."""

    def __init__(self, count: int) -> None:
        self._all = {
            ecosystem.directory: [_start(ecosystem) for _ in range(count)]
            for ecosystem in (PYTHON, NODE)
        }
        # Wait until all have started: starting would take CPU time from the first contender.
        everybody = [process for processes in self._all.values() for process in processes]
        for process in everybody:
            process.send(close=True)
        receive(everybody)

    @contextmanager
    def opened(
        self,
        contender: Contender,
        servers: Sequence[Server],
        name: str,
        processes: int,
        clients: int = 1,
    ) -> Iterator[Fighters]:
        """Opens the clients of a contender in `processes` processes, with `clients` clients each.

        `name` is part of all their keys.
        """
        nodes = servers[: contender.nodes]
        chosen = self._choose(contender.ecosystems, processes)
        for number, process in enumerate(chosen):
            process.send(
                open=contender.library,
                urls=[node.url for node in nodes],
                tuned=contender.tuned,
                clients=clients,
                warm=f"{name}-warm-{number}",
            )
        check(contender, receive(chosen))
        fighters = Fighters(contender, nodes, chosen, clients)
        yield fighters
        self._replace(fighters.stuck)
        others = [process for process in chosen if process not in fighters.stuck]
        for process in others:
            process.send(close=True)
        check(contender, receive(others))
        if contender.is_peer:  # leftover keys of peers must not count for quorlock
            counting.delete(nodes, name)

    def _choose(self, ecosystems: Sequence[Ecosystem], count: int) -> list[Process]:
        share = count // len(ecosystems)
        return [process for each in ecosystems for process in self._all[each.directory][:share]]

    def _replace(self, stuck: Sequence[Process]) -> None:
        for ecosystem in (PYTHON, NODE):
            processes = self._all[ecosystem.directory]
            for index, process in enumerate(processes):
                if process in stuck:
                    process.kill()
                    processes[index] = _start(ecosystem)

    def close(self) -> None:
        for processes in self._all.values():
            for process in processes:
                process.kill()


def _start(ecosystem: Ecosystem) -> Process:
    return Process(ecosystem.program, ecosystem.environment)


def check(contender: Contender, answers: list[dict[str, Any]], wanted: str = "") -> None:
    for answer in answers:
        if (wanted and wanted not in answer) or (not wanted and answer):
            raise SystemExit(f"{contender.name}: {answer.get('error')}")
