"""Leases that are held for long, and lost: what their holders see."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from nodes import freeze, is_free, steal, thaw
from servers import Servers
from waiting import TIMEOUT, wait_until, wait_until_async

import quorlock


@pytest.fixture
def servers(start_servers: Callable[..., Servers]) -> Servers:
    return start_servers(3)


@pytest.fixture
def client(servers: Servers) -> Iterator[quorlock.Client]:
    with quorlock.Client(servers.urls, ttl=0.6) as client:
        yield client


def test_a_lease_outlives_a_thread_that_keeps_the_gil(client: quorlock.Client) -> None:
    sleep_with_the_gil = ctypes.PyDLL(None).usleep
    with client.lock("r") as lease:
        for _ in range(3):
            sleep_with_the_gil(700_000)
            assert lease.valid


def test_a_lease_outlives_an_event_loop_that_stalls(client: quorlock.Client) -> None:
    async def main() -> None:
        async with client.lock("r") as lease:
            for _ in range(3):
                time.sleep(0.7)
                assert lease.valid
                await asyncio.sleep(0)

    asyncio.run(main())


def test_the_loss_is_told_at_the_validity_end_when_all_nodes_hang(
    client: quorlock.Client, servers: Servers
) -> None:
    lease = client.lock("r").acquire()
    freeze(servers)
    promised, began = lease.remaining, time.monotonic()
    assert lease.wait_lost()
    assert time.monotonic() - began >= promised - 0.001
    assert not lease.valid
    thaw(servers)
    # The extensions that were under way are confirmed now, which must not revive the lease.
    until = time.monotonic() + 1
    while time.monotonic() < until:
        assert not lease.valid
    with pytest.raises(quorlock.LeaseLostError, match="ended"):
        lease.check()
    with pytest.raises(quorlock.LeaseLostError, match="ended"):
        lease.extend()
    assert not lease.release()
    wait_until(lambda: is_free(servers, "r"))


def test_functions_are_called_on_loss(client: quorlock.Client, servers: Servers) -> None:
    lease = client.lock("r").acquire()
    losses: list[quorlock.LeaseLostError] = []
    stopped, last = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []
    lease.on_lost(losses.append)
    lease.on_lost(lambda: threads.append(threading.current_thread()))
    lease.on_lost(stopped.set)
    lease.on_lost(lambda loss, note="x": losses.append(loss))
    lease.on_lost(last.set)
    assert not losses
    steal(servers, "r")
    assert last.wait(TIMEOUT)
    assert stopped.is_set()
    assert len(losses) == 2
    assert all("majority" in str(loss) and loss.resource == "r" for loss in losses)
    assert threads[0] is not threading.main_thread()
    late = threading.Event()
    lease.on_lost(late.set)
    assert late.wait(TIMEOUT)


def test_a_function_that_fails_is_reported_and_does_not_stop_the_others(
    client: quorlock.Client, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: reported.append(report.exc_value))
    lease = client.lock("r").acquire()
    last = threading.Event()

    def fail() -> None:
        raise KeyError("callback")

    lease.on_lost(fail)
    lease.on_lost(last.set)
    steal(servers, "r")
    assert last.wait(TIMEOUT)
    assert [repr(error) for error in reported] == ["KeyError('callback')"]
    with pytest.raises(TypeError, match="callable"):
        lease.on_lost(7)  # type: ignore[arg-type]


def test_a_slow_function_holds_up_no_event_loop(client: quorlock.Client, servers: Servers) -> None:
    lease = client.lock("r").acquire()
    entered, leave = threading.Event(), threading.Event()

    def be_slow() -> None:
        entered.set()
        leave.wait(TIMEOUT)

    lease.on_lost(be_slow)
    steal(servers, "r")
    assert entered.wait(TIMEOUT)

    async def main() -> None:
        async with client.lock("s"):
            pass

    asyncio.run(main())
    leave.set()


def test_no_function_is_called_for_a_released_lease(client: quorlock.Client) -> None:
    called: list[object] = []
    with client.lock("r") as lease:
        lease.on_lost(called.append)
    lease.on_lost(called.append)
    assert not lease.wait_lost()
    # One thread calls all functions in order: when it has called this one, it will not call those.
    other, last = client.lock("s", ttl=0.1, auto_extend=False).acquire(), threading.Event()
    other.on_lost(last.set)
    assert last.wait(TIMEOUT)
    assert not called


def test_functions_of_an_event_loop_are_called_in_it(
    client: quorlock.Client, servers: Servers
) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="outside")
    seen: list[tuple[str, threading.Thread, bool]] = []

    async def main() -> None:
        variable.set("inside")
        lease = await client.lock("r").acquire_async()
        lost = asyncio.Event()

        def note(loss: quorlock.LeaseLostError) -> None:
            in_loop = asyncio.get_running_loop() is loop
            seen.append((variable.get(), threading.current_thread(), in_loop))

        loop = asyncio.get_running_loop()
        lease.on_lost(note)
        lease.on_lost(lost.set)
        steal(servers, "r")
        await asyncio.wait_for(lost.wait(), TIMEOUT)

    asyncio.run(main())
    assert seen == [("inside", threading.current_thread(), True)]


def test_a_loss_after_the_end_of_the_event_loop_is_no_error(
    client: quorlock.Client, servers: Servers, capfd: pytest.CaptureFixture[str]
) -> None:
    async def main() -> quorlock.Lease:
        lease = await client.lock("r").acquire_async()
        lease.on_lost(lambda: pytest.fail("the loop is closed"))
        return lease

    lease = asyncio.run(main())
    steal(servers, "r")
    assert lease.wait_lost(TIMEOUT)
    client.lock("s").acquire().release()
    assert capfd.readouterr().err == ""


def test_waiting_for_the_loss_ends(client: quorlock.Client, servers: Servers) -> None:
    lease = client.lock("r").acquire()
    assert not lease.wait_lost(0)
    assert not lease.wait_lost(timeout=0.05)
    assert not lease.wait_lost(timedelta(milliseconds=50))
    results: list[bool] = []
    waiters = [threading.Thread(target=lambda: results.append(lease.wait_lost())) for _ in "ab"]
    for waiter in waiters:
        waiter.start()
    steal(servers, "r")
    for waiter in waiters:
        waiter.join(TIMEOUT)
    assert results == [True, True]
    assert lease.wait_lost(0)
    for bad in (-1, float("nan"), "1", True):
        with pytest.raises(quorlock.ConfigError, match="timeout must be"):
            lease.wait_lost(bad)  # type: ignore[arg-type]


def test_tasks_can_wait_for_the_loss(client: quorlock.Client, servers: Servers) -> None:
    async def main() -> None:
        lease = await client.lock("r").acquire_async()
        assert not await lease.wait_lost_async(0.05)
        waiters = [asyncio.create_task(lease.wait_lost_async()) for _ in "ab"]
        cancelled = asyncio.create_task(lease.wait_lost_async(TIMEOUT))
        await asyncio.sleep(0.01)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        steal(servers, "r")
        assert await asyncio.gather(*waiters) == [True, True]
        with pytest.raises(quorlock.ConfigError, match="timeout must be"):
            await lease.wait_lost_async(-1)
        released = await client.lock("s").acquire_async()
        waiter = asyncio.create_task(released.wait_lost_async())
        await asyncio.sleep(0.01)
        await released.release_async()
        assert not await waiter
        await wait_until_async(lambda: is_free(servers, "s"))

    asyncio.run(main())


def test_a_forgotten_lease_is_released_though_it_would_be_extended(
    client: quorlock.Client, servers: Servers
) -> None:
    called: list[object] = []
    lease = client.lock("r").acquire()
    lease.on_lost(called.append)
    del lease
    wait_until(lambda: is_free(servers, "r"))
    assert not called
