"""A running fleet is migrated to quorlock process by process, and back again.

At no time do two processes hold the lock, whichever library they use, and no update is lost.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from interop.installing import NODE, PYTHON, Ecosystem
from servers import Servers
from waiting import TIMEOUT, wait_until

WORKERS = Path(__file__).resolve().parent / "workers"

TTL = 15_000
"""The ttl in milliseconds. It is much longer than a worker holds the lock, even on a loaded
machine. It is much shorter than the time limit of the test: a library that returns when a majority
has granted may leave a key on another node until it expires."""

TURNS = 3
"""The number of times that each worker must hold the lock before the next worker is replaced."""


@dataclass(frozen=True)
class Service:
    """A service that is migrated from `library` to quorlock."""

    library: str
    ecosystem: Ecosystem

    @property
    def before(self) -> Sequence[str | Path]:
        program = "before.cjs" if self.ecosystem is NODE else "before.py"
        return [self.ecosystem.program[0], WORKERS / program]

    @property
    def after(self) -> Sequence[str | Path]:
        if self.ecosystem is NODE:
            return ["node", WORKERS / "after.js"]
        return [sys.executable, WORKERS / "after.py"]


@dataclass(frozen=True)
class Fleet:
    name: str
    services: Sequence[Service]
    prefix: str = ""
    nodes: int = 3

    def __str__(self) -> str:
        return self.name


def two_of(library: str, ecosystem: Ecosystem, **options: Any) -> Fleet:
    return Fleet(library, [Service(library, ecosystem)] * 2, **options)


FLEETS = [
    two_of("redlock-4", NODE),
    two_of("redlock-5", NODE),
    two_of("redlock-universal", NODE),
    two_of("redis-semaphore", NODE, prefix="mutex:"),
    two_of("redlock-py", PYTHON),
    two_of("pottery", PYTHON, prefix="redlock:"),
    two_of("redis-py", PYTHON, nodes=1),
    Fleet("both-languages", [Service("redlock-5", NODE), Service("redlock-py", PYTHON)]),
]


class Worker:
    """A process of a service."""

    def __init__(self, command: Sequence[str | Path], history: Path, **settings: Any) -> None:
        self.history = history
        self._process = subprocess.Popen(
            [*command, json.dumps({**settings, "name": history.name, "history": str(history)})],
            stdin=subprocess.PIPE,
            env={**os.environ, **NODE.environment, "PYTHONPATH": str(WORKERS.parents[1])},
        )

    @property
    def turns(self) -> list[dict[str, Any]]:
        """The periods in which the worker has held the lock so far."""
        if not self.history.exists():
            return []
        lines = self.history.read_text().splitlines(keepends=True)
        # The last line may be incomplete while it is being written.
        return [json.loads(line) for line in lines if line.endswith("\n")]

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """Lets the process finish its work with the lock, and waits until it exits."""
        assert self._process.stdin
        self._process.stdin.close()
        assert self._process.wait(TIMEOUT) == 0

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.mark.parametrize("fleet", FLEETS, ids=str)
def test_a_fleet_is_migrated_and_back_without_overlap_or_lost_update(
    fleet: Fleet,
    install: Callable[[Ecosystem], str | None],
    start_servers: Callable[..., Servers],
    tmp_path: Path,
) -> None:
    for service in fleet.services:
        if reason := install(service.ecosystem):
            pytest.skip(f"{service.library} cannot be installed: {reason}")
    urls = start_servers(fleet.nodes).urls
    counter = tmp_path / "counter"
    counter.write_text("0")
    names = itertools.count()
    all_workers: list[Worker] = []

    def start(service: Service, command: Sequence[str | Path]) -> Worker:
        worker = Worker(
            command,
            tmp_path / f"{next(names)}",
            library=service.library,
            urls=urls,
            prefix=fleet.prefix,
            ttl=TTL,
            counter=str(counter),
        )
        stack.callback(worker.kill)
        all_workers.append(worker)
        return worker

    def all_take_turns() -> None:
        before = [len(worker.turns) for worker in working]

        def all_have() -> bool:
            assert all(worker.is_running for worker in working), "a worker has exited"
            pairs = zip(working, before, strict=True)
            return all(len(worker.turns) >= turns + TURNS for worker, turns in pairs)

        wait_until(all_have)

    with ExitStack() as stack:
        working = [start(service, service.before) for service in fleet.services]
        all_take_turns()
        for commands in ("after", "before"):
            for index, service in enumerate(fleet.services):
                working[index].end()
                working[index] = start(service, getattr(service, commands))
                all_take_turns()
        for worker in working:
            worker.end()

    turns = sorted(
        (turn for worker in all_workers for turn in worker.turns), key=lambda turn: turn["begun"]
    )
    for earlier, later in itertools.pairwise(turns):
        assert earlier["ended"] <= later["begun"], "two workers held the lock at the same time"
    assert int(counter.read_text()) == len(turns), "an update was lost"
    fences = [turn["fence"] for turn in turns if turn["fence"] is not None]
    assert len(fences) >= TURNS * len(fleet.services)
    assert fences == sorted(set(fences)), "a fence did not increase"
