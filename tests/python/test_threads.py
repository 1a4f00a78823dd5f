"""Threads that share a client, on nodes in memory. On a free-threaded CPython they run in parallel.

CI runs this file with every supported version of Python, without the fixtures of the other tests.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from typing import Any, cast

import pytest

import quorlock
from quorlock import _threads

THREADS = 8
ROUNDS = 50
TIMEOUT = 30
NODES = ["memory://threads-1", "memory://threads-2", "memory://threads-3"]


@pytest.fixture(autouse=True)
def switch_often() -> Iterator[None]:
    """Makes threads switch between any two steps, where only one runs at a time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run(work: Callable[[int], object]) -> None:
    """Runs `work` in all threads, which begin at the same time."""
    barrier = threading.Barrier(THREADS)
    errors: list[BaseException] = []

    def body(number: int) -> None:
        try:
            barrier.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has always a GIL"
)
def test_the_import_does_not_enable_the_gil() -> None:
    program = "import sys, quorlock; sys.exit(sys._is_gil_enabled())"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_callbacks_do_not_get_the_context_of_a_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    class Inheriting(threading.Thread):
        """Inherits the context, as all threads do on a free-threaded CPython 3.14."""

        def __init__(self, *, target: Callable[..., object], args: Any, **options: Any) -> None:
            super().__init__(target=copy_context().run, args=(target, *args), **options)

    class Worker:
        """Has one call."""

        name = "worker"

        def next(self) -> tuple[Callable[..., object], tuple[()], None]:
            if called.is_set():
                threading.Event().wait()
            return call, (), None

    def call() -> None:
        seen.append(variable.get())
        called.set()

    seen, called = list[object](), threading.Event()
    variable = ContextVar[object]("variable", default=None)
    variable.set("the caller's")
    monkeypatch.setattr(threading, "Thread", Inheriting)
    _threads.start(cast(Any, Worker()))
    assert called.wait(TIMEOUT)
    assert seen == [None]


def test_all_forms_exclude_each_other() -> None:
    counter = 0
    with quorlock.Client(NODES, wait=None) as client:
        lock = client.lock("r")

        def count() -> None:
            nonlocal counter
            value = counter
            client.stats()
            counter = value + 1

        @client.lock(lambda: "r")
        def decorated() -> None:
            count()

        def work(number: int) -> None:
            for _ in range(ROUNDS):
                match number % 4:
                    case 0:
                        with lock:
                            count()
                    case 1:
                        with lock.acquire():
                            count()
                    case 2:
                        decorated()
                    case _:
                        while (lease := lock.try_acquire()) is None:
                            pass
                        with lease:
                            count()

        run(work)
        stats = client.stats()
    assert counter == THREADS * ROUNDS
    assert (stats.releases, stats.losses, stats.dropped) == (THREADS * ROUNDS, 0, 0)


class WatchesNoSockets(asyncio.SelectorEventLoop):
    """An event loop that a thread of quorlock has to wake up, as on Windows."""

    def add_reader(self, *_: object) -> None:
        raise NotImplementedError


# In a process of its own, because only the first use in a process is at stake.
LOOPS = f"""
import asyncio, sys
sys.setswitchinterval(1e-6)
sys.path[:] = {sys.path!r}
import quorlock, test_threads
client = quorlock.Client(test_threads.NODES)
async def hold(number):
    for _ in range(5):
        async with client.lock(str(number)):
            await asyncio.sleep(0)
def work(number):
    factory = test_threads.WatchesNoSockets if number % 2 else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(asyncio.wait_for(hold(number), 30))
test_threads.run(work)
"""


def test_event_loops_of_several_threads_can_start_at_the_same_time() -> None:
    for _ in range(3):
        subprocess.run([sys.executable, "-c", LOOPS], check=True, timeout=60)


def test_losses_are_told_and_logged_while_threads_acquire(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "quorlock")
    told: list[str] = []
    with quorlock.Client(NODES) as client:

        def work(number: int) -> None:
            for round_ in range(5):
                name = f"{number}-{round_}"
                lease = client.lock(name, ttl=0.02, auto_extend=False).acquire()
                lease.on_lost(lambda loss: told.append(loss.resource or ""))
                with client.lock(f"other-{name}"):
                    assert lease.wait_lost(60)

        run(work)
    names = {f"{number}-{round_}" for number in range(THREADS) for round_ in range(5)}
    deadline = time.monotonic() + 60
    while set(told) != names and time.monotonic() < deadline:
        time.sleep(0.001)
    assert sorted(told) == sorted(names)
    lost = [vars(r)["resource"] for r in caplog.records if vars(r).get("event") == "lease.lost"]
    assert names <= set(lost)
    assert len(lost) == len(set(lost))
