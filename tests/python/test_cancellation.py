"""Interrupted acquires and releases leave no key on the nodes, whenever they are interrupted."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
import uvloop
from nodes import is_free, keys
from servers import Servers
from waiting import TIMEOUT, wait_until, wait_until_async

import quorlock

ROUNDS = 1000
LONGEST = 0.002
"""The longest delay before an interruption, in seconds. Most acquires take less."""


@pytest.fixture
def servers(start_servers: Callable[..., Servers]) -> Servers:
    return start_servers(5)


@pytest.fixture
def client(servers: Servers) -> Iterator[quorlock.Client]:
    with quorlock.Client(servers.urls, ttl=600) as client:
        yield client


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner


def test_tasks_cancelled_at_any_moment_leave_no_key(
    runner: asyncio.Runner, client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        cancelled = 0
        for round_ in range(ROUNDS):
            task = asyncio.create_task(client.lock(f"r{round_}").acquire_async())
            await asyncio.sleep(random.random() * LONGEST)
            task.cancel()
            try:
                lease = await task
            except asyncio.CancelledError:
                cancelled += 1
            else:
                await lease.release_async()
            del task
        assert 0 < cancelled < ROUNDS
        assert client.stats().dropped == 0
        await wait_until_async(lambda: not keys(servers))

    runner.run(main())


def test_blocks_cancelled_at_any_moment_leave_no_key(
    runner: asyncio.Runner, client: quorlock.Client, servers: Servers
) -> None:
    """The cancellation may also arrive while the task enters or leaves the block."""
    lock = client.lock("r", wait=None)

    async def hold() -> None:
        async with lock:
            await asyncio.sleep(0)

    async def main() -> None:
        for _ in range(ROUNDS):
            task = asyncio.create_task(hold())
            await asyncio.sleep(random.random() * LONGEST)
            task.cancel()
            await asyncio.wait([task])
        await wait_until_async(lambda: not keys(servers))

    runner.run(main())


def test_a_cancelled_waiter_leaves_no_key(
    runner: asyncio.Runner, client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        async with client.lock("r"):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2), client.lock("r", wait=None):
                    pytest.fail("the body ran")
            await wait_until_async(lambda: is_free(servers, "{r}:queue"))
        await wait_until_async(lambda: not keys(servers))

    runner.run(main())


def test_a_cancelled_release_completes(
    runner: asyncio.Runner, client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        for round_ in range(100):
            lease = await client.lock(f"r{round_}").acquire_async()
            task = asyncio.create_task(lease.release_async())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not lease.valid
            await wait_until_async(lambda: not keys(servers))

    runner.run(main())


def test_closing_the_loop_of_an_acquire_leaves_no_key(
    client: quorlock.Client, servers: Servers
) -> None:
    with client.lock("r") as lease:
        loop = asyncio.new_event_loop()
        task = loop.create_task(client.lock("r", wait=None).acquire_async())
        loop.run_until_complete(asyncio.sleep(0.01))
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.close()
        lease.release()
        asyncio.run(wait_until_async(lambda: not keys(servers)))


def test_interrupts_at_any_moment_leave_no_key(client: quorlock.Client, servers: Servers) -> None:
    """The timer signal interrupts the main thread as Ctrl-C does."""
    lock = client.lock("r", wait=None)
    interrupts = 0

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(ROUNDS):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 + random.random() * LONGEST)
                try:
                    with lock:
                        pass
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert 0 < interrupts < ROUNDS
    wait_until(lambda: not keys(servers))


def test_interrupts_are_never_lost(client: quorlock.Client) -> None:
    """The interpreter ignores what is raised in `__del__`, so no handler may run there."""
    lock = client.lock("r")
    is_interrupted = False

    def interrupt(*_: object) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(ROUNDS):
            is_interrupted = False
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 1e-6 + random.random() * LONGEST)
                while not is_interrupted:
                    with lock:
                        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_ctrl_c_ends_a_blocking_acquire(servers: Servers, client: quorlock.Client) -> None:
    program = """
import sys, time, quorlock
client = quorlock.Client(sys.argv[1:])
print("waiting", flush=True)
try:
    client.lock("r", wait=None).acquire()
except KeyboardInterrupt:
    print(time.monotonic(), flush=True)
    client.close()
"""
    with client.lock("r"):
        for _ in range(3):
            child = subprocess.Popen(
                [sys.executable, "-c", program, *servers.urls], stdout=subprocess.PIPE, text=True
            )
            assert child.stdout
            assert child.stdout.readline() == "waiting\n"
            # Wait for three connections: of this process, of `command` and of the child.
            wait_until(lambda: str(servers[0].command("CLIENT", "LIST")).count(" addr=") > 2)
            began = time.monotonic()
            child.send_signal(signal.SIGINT)
            took = float(child.communicate(timeout=TIMEOUT)[0]) - began
            # 25 ms on an idle machine; without the signal, it would wait for ever.
            assert took < 20
            assert child.returncode == 0
    wait_until(lambda: is_free(servers, "r"))
