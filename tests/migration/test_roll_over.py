"""A fleet is rolled over to quorlock process by process, and back again, while it works.

At no moment do two have the lock, whichever library they use, and nobody's work is lost.
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
"""Milliseconds: much longer than a turn, also on a machine that is busy with other things, and much
shorter than what the test waits: a library that returns when a majority has granted may leave a key
behind on another node."""

TURNS = 3
"""How often everybody has to have the lock before the next one is replaced."""


@dataclass(frozen=True)
class Service:
    """One that is migrated."""

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
    two_of("redis-semaphore", NODE, prefix="mutex:"),
    two_of("redlock-py", PYTHON),
    two_of("pottery", PYTHON, prefix="redlock:"),
    two_of("redis-py", PYTHON, nodes=1),
    Fleet("both-languages", [Service("redlock-5", NODE), Service("redlock-py", PYTHON)]),
]


class Worker:
    """A process of a service, until `end` or the end of `with`."""

    def __init__(self, command: Sequence[str | Path], history: Path, **settings: Any) -> None:
        self.history = history
        self._process = subprocess.Popen(
            [*command, json.dumps({**settings, "name": history.name, "history": str(history)})],
            stdin=subprocess.PIPE,
            env={**os.environ, **NODE.environment, "PYTHONPATH": str(WORKERS.parents[1])},
        )

    @property
    def turns(self) -> list[dict[str, Any]]:
        """Those that it has had."""
        if not self.history.exists():
            return []
        lines = self.history.read_text().splitlines(keepends=True)
        # What is being written just now has no end yet.
        return [json.loads(line) for line in lines if line.endswith("\n")]

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """Lets it finish its turn."""
        assert self._process.stdin
        self._process.stdin.close()
        assert self._process.wait(TIMEOUT) == 0

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.mark.parametrize("fleet", FLEETS, ids=str)
def test_roll_over_and_back(
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
    everybody: list[Worker] = []

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
        everybody.append(worker)
        return worker

    def all_take_turns() -> None:
        before = [len(worker.turns) for worker in working]

        def have() -> bool:
            assert all(worker.is_running for worker in working), "it gave up"
            had = zip(working, before, strict=True)
            return all(len(worker.turns) >= turns + TURNS for worker, turns in had)

        wait_until(have)

    with ExitStack() as stack:
        working = [start(service, service.before) for service in fleet.services]
        all_take_turns()
        for commands in ("after", "before"):
            for place, service in enumerate(fleet.services):
                working[place].end()
                working[place] = start(service, getattr(service, commands))
                all_take_turns()
        for worker in working:
            worker.end()

    turns = sorted(
        (turn for worker in everybody for turn in worker.turns), key=lambda turn: turn["begun"]
    )
    for earlier, later in itertools.pairwise(turns):
        assert earlier["ended"] <= later["begun"], "two had the lock at a time"
    assert int(counter.read_text()) == len(turns), "somebody's work was lost"
    fences = [turn["fence"] for turn in turns if turn["fence"] is not None]
    assert len(fences) >= TURNS * len(fleet.services)
    assert fences == sorted(set(fences)), "a fence is larger than all before it"
