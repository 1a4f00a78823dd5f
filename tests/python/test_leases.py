"""Leases that are held for a long time, lost, or garbage-collected."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import dataclasses
import functools
import gc
import logging
import os
import queue
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from nodes import is_free, steal
from servers import Servers
from waiting import TIMEOUT, wait_until, wait_until_async

import quorlock
from quorlock import _scope


@pytest.fixture
def client(servers: Servers) -> Iterator[quorlock.Client]:
    with quorlock.Client(servers.urls, ttl=2) as client:
        yield client


def test_a_lease_is_renewed_while_a_thread_holds_the_gil(client: quorlock.Client) -> None:
    sleep_with_the_gil = ctypes.PyDLL(None).usleep
    with client.lock("r") as lease:
        sleep_with_the_gil(2_500_000)
        assert lease.valid


def test_a_lease_is_renewed_while_the_event_loop_is_blocked(client: quorlock.Client) -> None:
    async def main() -> None:
        async with client.lock("r") as lease:
            time.sleep(2.5)
            assert lease.valid

    asyncio.run(main())


def test_on_lost_callbacks_are_called_on_loss(client: quorlock.Client, servers: Servers) -> None:
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


def test_a_failing_on_lost_callback_is_reported_and_does_not_stop_others(
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


def test_an_on_lost_callback_that_would_never_run_is_refused(client: quorlock.Client) -> None:
    async def stop(loss: object = None, note: str = "") -> None:
        pytest.fail("the body ran")

    def generate() -> Iterator[None]:
        yield

    async def generate_async() -> AsyncIterator[None]:
        yield

    class Stop:
        async def __call__(self) -> None: ...

        async def stop(self) -> None: ...

    async def main() -> None:
        for callback in (stop, functools.partial(stop, note="x"), Stop(), Stop().stop):
            with pytest.raises(TypeError, match=r"not async, .*: pass a function that"):
                lease.on_lost(callback)
        for generator in (generate, generate_async):
            with pytest.raises(TypeError, match=r"not a generator, .*: its body would never run"):
                lease.on_lost(generator)

    with client.lock("r") as lease:
        asyncio.run(main())
        with pytest.raises(TypeError, match="not async"):
            lease.on_lost(stop)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="the definition fails before Python 3.14")
def test_an_annotation_of_an_on_lost_callback_may_name_what_is_not_imported(
    client: quorlock.Client, servers: Servers
) -> None:
    code = "def stop(loss: Missing) -> Missing: lost.put(loss)"
    names: dict[str, Any] = {"lost": queue.SimpleQueue[quorlock.LeaseLostError]()}
    # Without the `__future__` import of this file, which makes annotations strings.
    exec(compile(code, "stop", "exec", dont_inherit=True), names)
    lease = client.lock("r").acquire()
    lease.on_lost(names["stop"])
    steal(servers, "r")
    assert isinstance(names["lost"].get(timeout=TIMEOUT), quorlock.LeaseLostError)


def test_a_slow_on_lost_callback_does_not_delay_event_loops(
    client: quorlock.Client, servers: Servers
) -> None:
    lease = client.lock("r").acquire()
    entered, leave = threading.Event(), threading.Event()

    def slow() -> None:
        entered.set()
        leave.wait(TIMEOUT)

    lease.on_lost(slow)
    steal(servers, "r")
    assert entered.wait(TIMEOUT)

    async def main() -> None:
        async with client.lock("s"):
            pass

    asyncio.run(main())
    leave.set()


def test_a_slow_on_lost_callback_does_not_delay_other_leases(
    client: quorlock.Client, servers: Servers
) -> None:
    entered, leave = threading.Event(), threading.Event()
    calls: list[str] = []
    leases = [client.lock(f"slow-{number}").acquire() for number in range(5)]

    def slow() -> None:
        entered.set()
        leave.wait(TIMEOUT)

    for lease in leases:
        lease.on_lost(slow)
        lease.on_lost(lambda: calls.append("after a slow one"))
    other = client.lock("other").acquire()
    for number in range(50):
        other.on_lost(functools.partial(lambda text: calls.append(text), str(number)))
    try:
        for lease in leases:
            steal(servers, lease.resources[0])
        assert entered.wait(TIMEOUT)
        steal(servers, "other")
        # The callbacks of one lease are called in order.
        wait_until(lambda: calls == [str(number) for number in range(50)])
    finally:
        leave.set()
    wait_until(lambda: calls[50:] == ["after a slow one"] * 5)


def test_a_released_lease_calls_no_on_lost_callback(client: quorlock.Client) -> None:
    losses: list[object] = []
    with client.lock("r") as lease:
        lease.on_lost(losses.append)
    lease.on_lost(losses.append)
    assert not lease.wait_lost()
    # Quick callbacks run in order: `losses.append` would have been called before `last.set`.
    other, last = client.lock("s", ttl=0.1, auto_extend=False).acquire(), threading.Event()
    other.on_lost(last.set)
    assert last.wait(TIMEOUT)
    assert not losses


def test_on_lost_callbacks_run_in_the_event_loop_they_were_registered_in(
    client: quorlock.Client, servers: Servers
) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="outside")
    seen: list[tuple[str, threading.Thread, bool]] = []

    async def main() -> None:
        variable.set("inside")
        lease = await client.lock("r").acquire_async()
        lost = asyncio.Event()

        def record(loss: quorlock.LeaseLostError) -> None:
            in_loop = asyncio.get_running_loop() is loop
            seen.append((variable.get(), threading.current_thread(), in_loop))

        loop = asyncio.get_running_loop()
        lease.on_lost(record)
        lease.on_lost(lost.set)
        steal(servers, "r")
        await asyncio.wait_for(lost.wait(), TIMEOUT)

    asyncio.run(main())
    assert seen == [("inside", threading.current_thread(), True)]


def test_a_loss_after_the_event_loop_is_closed_is_silent(
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


def test_wait_lost_returns_on_timeout_and_on_loss(
    client: quorlock.Client, servers: Servers
) -> None:
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


def test_wait_lost_async_returns_on_timeout_loss_and_release(
    client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        lease = await client.lock("r").acquire_async()
        assert not await lease.wait_lost_async(0.05)
        waiters = [asyncio.create_task(lease.wait_lost_async()) for _ in "ab"]
        cancelled = asyncio.create_task(lease.wait_lost_async(TIMEOUT))
        await asyncio.sleep(0.01)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert not await lease.wait_lost_async(0)
        steal(servers, "r")
        assert await asyncio.gather(*waiters) == [True, True]
        assert await lease.wait_lost_async(0)
        with pytest.raises(quorlock.ConfigError, match="timeout must be"):
            await lease.wait_lost_async(-1)
        released = await client.lock("s").acquire_async()
        waiter = asyncio.create_task(released.wait_lost_async())
        await asyncio.sleep(0.01)
        await released.release_async()
        assert not await waiter
        await wait_until_async(lambda: is_free(servers, "s"))

    asyncio.run(main())


def test_a_collected_lease_is_not_released_and_expires_with_a_warning(
    client: quorlock.Client, servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    losses: list[quorlock.LeaseLostError] = []
    lease = client.lock("r", ttl=2).acquire()
    lease.on_lost(losses.append)
    fence = lease.fence
    cycle = [lease]
    cycle.append(cycle)  # type: ignore[arg-type]
    del lease, cycle
    with pytest.warns(quorlock.LeaseDroppedWarning, match="the lease of 'r' was dropped"):
        gc.collect()
    stats = client.stats()
    assert (stats.dropped, stats.releases, stats.losses, stats.held) == (1, 0, 0, 0)
    with pytest.raises(quorlock.LockTimeoutError, match="dropped without being released"):
        client.lock("r", wait=0).acquire()

    # The lease is no longer renewed, so it expires. Then its `on_lost` callback is called, but the
    # end of a dropped lease is not counted as a loss.
    wait_until(lambda: is_free(servers, "r"))
    wait_until(lambda: len(losses) == 1)
    assert "dropped without being released" in str(losses[0])
    assert client.stats().losses == 0

    def dropped() -> list[logging.LogRecord]:
        return [record for record in caplog.records if vars(record)["event"] == "lease.dropped"]

    wait_until(lambda: len(dropped()) == 1)
    assert vars(dropped()[0]).items() >= {"resource": "r", "fence": fence}.items()
    assert dropped()[0].levelname == "WARNING"


def test_a_lease_of_an_unreachable_block_is_collected(client: quorlock.Client) -> None:
    def enter() -> None:
        contextlib.ExitStack().enter_context(client.lock("r"))

    enter()
    with pytest.warns(quorlock.LeaseDroppedWarning, match="the lease of 'r' was dropped"):
        gc.collect()
    with pytest.raises(RuntimeError, match="no lock is held here"):
        quorlock.current_lease()


def test_the_warning_names_the_line_that_drops_the_lease(client: quorlock.Client) -> None:
    with pytest.warns(quorlock.LeaseDroppedWarning) as caught:
        client.lock("r").acquire()
    assert caught[0].filename == __file__
    assert isinstance(caught[0].source, quorlock.Lease)


def test_an_interrupt_replaces_the_error_that_is_being_created(
    client: quorlock.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    lease = client.lock("r", ttl=0.05, auto_extend=False).acquire()
    wait_until(lambda: not lease.valid)
    monkeypatch.setattr(quorlock.QuorlockError, "__init__", interrupted)
    for call in (lease.check, lambda: lease._native.loss, lambda: client.lock("")):
        with pytest.raises(KeyboardInterrupt):
            call()


def test_an_interrupt_while_losses_are_delivered_loses_no_loss(
    client: quorlock.Client, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = quorlock.QuorlockError.__init__
    losses: list[quorlock.LeaseLostError] = []
    done = asyncio.Event()

    def interrupted(*arguments: Any) -> None:
        monkeypatch.setattr(quorlock.QuorlockError, "__init__", create)
        raise KeyboardInterrupt

    def on_lost(loss: quorlock.LeaseLostError) -> None:
        losses.append(loss)
        done.set()

    async def main() -> None:
        lease = await client.lock("r").acquire_async()
        lease.on_lost(on_lost)
        monkeypatch.setattr(quorlock.QuorlockError, "__init__", interrupted)
        steal(servers, "r")
        await done.wait()

    loop = asyncio.new_event_loop()
    waiting = loop.create_task(main())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(waiting)
    assert losses == []
    loop.run_until_complete(asyncio.wait_for(done.wait(), TIMEOUT))
    loop.run_until_complete(waiting)
    loop.close()
    assert isinstance(losses[0], quorlock.LeaseLostError)


def test_leases_in_blocks_and_ended_leases_are_collected_without_a_warning(
    servers: Servers,
) -> None:
    client = quorlock.Client(servers.urls)

    async def main() -> None:
        async with client.lock("r"):
            gc.collect()
        await (await client.lock("r").acquire_async()).release_async()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.lock("held").acquire_async(), 0.05)

    with warnings.catch_warnings():
        warnings.simplefilter("error", quorlock.LeaseDroppedWarning)
        with client.lock("r"):
            gc.collect()
        client.lock("r").acquire().release()
        holder = client.lock("held").acquire()
        asyncio.run(main())
        closed = client.lock("closed").acquire()
        client.close()
        del holder, closed
        gc.collect()
    assert client.stats().dropped == 0


def test_a_lease_in_a_forked_child_is_collected_without_a_warning(
    client: quorlock.Client, servers: Servers
) -> None:
    lease = client.lock("r").acquire()
    child = os.fork()
    if child == 0:
        with warnings.catch_warnings():
            warnings.simplefilter("error", quorlock.LeaseDroppedWarning)
            del lease
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert lease.valid
    assert client.stats().dropped == 0
    assert lease.release()


def test_a_thread_that_waits_for_its_own_lease_is_warned_about(
    client: quorlock.Client, caplog: pytest.LogCaptureFixture
) -> None:
    def reentrant() -> list[logging.LogRecord]:
        return [record for record in caplog.records if vars(record)["event"] == "acquire.reentrant"]

    with client.lock("s", ttl=10), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.lock("s", wait=1.5).acquire)
        with pytest.raises(quorlock.LockTimeoutError, match="another lease of this client"):
            waiting.result(TIMEOUT)
        assert not reentrant(), "another thread waits"

    def wait_for_itself() -> None:
        with client.lock("s", ttl=10), client.lock("s", wait=None):
            pass

    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(wait_for_itself)
        wait_until(lambda: len(reentrant()) == 1)
        client.close()
        with pytest.raises(quorlock.ClosedError):
            hanging.result(TIMEOUT)


def test_a_task_that_waits_for_its_own_lease_is_warned_about(
    client: quorlock.Client, caplog: pytest.LogCaptureFixture
) -> None:
    def reentrant() -> list[logging.LogRecord]:
        return [record for record in caplog.records if vars(record)["event"] == "acquire.reentrant"]

    async def wait_for_itself() -> None:
        async with client.lock("r", ttl=10), client.lock("r", wait=None):
            pass

    async def main() -> None:
        async with client.lock("r", ttl=10):
            other = asyncio.create_task(client.lock("r", wait=1.5).acquire_async())
            with pytest.raises(quorlock.LockTimeoutError, match="another lease of this client"):
                await other
            assert not reentrant()
        waiting = asyncio.create_task(wait_for_itself())
        await wait_until_async(lambda: len(reentrant()) == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    """An error that takes no note."""

    row: int


def test_an_error_that_takes_no_note_is_not_replaced(
    client: quorlock.Client, servers: Servers
) -> None:
    with pytest.raises(FrozenError), client.lock("r") as lease:
        steal(servers, "r")
        assert lease.wait_lost(TIMEOUT)
        raise FrozenError(1)


def test_the_end_of_a_generator_leaves_the_block_of_the_generator() -> None:
    client = quorlock.Client(["memory://blocks of generators"])
    semaphore = client.semaphore("s", limit=3)

    def hold() -> Generator[quorlock.Lease]:
        with semaphore as lease:
            yield lease

    async def main() -> None:
        async with semaphore as own:
            generator = hold()
            other = await asyncio.to_thread(next, generator)
            await asyncio.to_thread(next, generator, None)
            assert own.valid
            assert not other.valid

    generator = hold()
    other = next(generator)
    with semaphore as own:
        generator.close()
        assert own.valid
        assert not other.valid
        assert quorlock.current_lease() is own
    asyncio.run(main())
    with contextlib.ExitStack() as stack:
        leases = [stack.enter_context(semaphore) for _ in range(2)]
        with semaphore as own:
            pass
        assert [lease.valid for lease in [*leases, own]] == [True, True, False]
    assert client.stats().held == 0
    client.close()


def test_a_chain_of_tasks_keeps_no_blocks_that_have_ended() -> None:
    client = quorlock.Client(["memory://chain of tasks"])

    async def step(number: int) -> int:
        async with client.lock(f"r{number}"):
            if number == 50:
                return len(_scope.entered.get())
            task = asyncio.create_task(step(number + 1))
        return await task

    assert asyncio.run(step(0)) < 5
    client.close()


@pytest.mark.parametrize("acquire", [lambda lock: lock, quorlock.Lock.acquire])
def test_an_error_of_a_block_whose_lease_was_lost_has_a_note(
    client: quorlock.Client,
    servers: Servers,
    acquire: Callable[[quorlock.Lock], quorlock.Lock | quorlock.Lease],
) -> None:
    with pytest.raises(KeyError) as caught, acquire(client.lock("r")) as lease:
        steal(servers, "r")
        assert lease.wait_lost(TIMEOUT)
        raise KeyError("row")
    [note] = caught.value.__notes__
    assert note.startswith('the lease of "r" was lost: ')
    with pytest.raises(quorlock.LeaseLostError) as lost, acquire(client.lock("s")) as lease:
        steal(servers, "s")
        assert lease.wait_lost(TIMEOUT)
        lease.check()
    assert not hasattr(lost.value, "__notes__"), "the error says it already"
    with pytest.raises(KeyError) as caught, acquire(client.lock("t")):
        raise KeyError("row")
    assert not hasattr(caught.value, "__notes__")
