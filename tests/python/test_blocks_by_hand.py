"""Blocks that are entered or left without a `with` statement: the right lease ends, or none."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import threading
import unittest
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from nodes import steal
from servers import Servers
from waiting import TIMEOUT

import quorlock


@pytest.fixture
def memory(request: pytest.FixtureRequest) -> Iterator[quorlock.Client]:
    with quorlock.Client([f"memory://{request.node.name}"]) as client:
        yield client


class Service:
    """Enters a block in one method, and leaves it in another."""

    def __init__(self, semaphore: quorlock.Semaphore) -> None:
        self.semaphore = semaphore

    def start(self) -> quorlock.Lease:
        return self.semaphore.__enter__()

    def stop(self) -> None:
        self.semaphore.__exit__(None, None, None)


def test_a_stack_leaves_the_block_that_it_entered(memory: quorlock.Client) -> None:
    semaphore = memory.semaphore("s", limit=4)
    first, second = contextlib.ExitStack(), contextlib.ExitStack()
    held = first.enter_context(semaphore)
    renewed = second.enter_context(semaphore)
    first.close()
    assert (held.valid, renewed.valid) == (False, True)
    second.close()
    assert not renewed.valid


def test_an_async_stack_leaves_the_block_that_it_entered(memory: quorlock.Client) -> None:
    async def main() -> None:
        semaphore = memory.semaphore("s", limit=4)
        first, second = contextlib.AsyncExitStack(), contextlib.AsyncExitStack()
        held = await first.enter_async_context(semaphore)
        renewed = await second.enter_async_context(semaphore)
        # Also in another task.
        await asyncio.create_task(first.aclose())
        assert (held.valid, renewed.valid) == (False, True)
        await second.aclose()
        assert not renewed.valid

    asyncio.run(main())


def test_an_object_leaves_the_block_that_it_entered(memory: quorlock.Client) -> None:
    semaphore = memory.semaphore("s", limit=4)
    first, second = Service(semaphore), Service(semaphore)
    held, renewed = first.start(), second.start()
    first.stop()
    assert (held.valid, renewed.valid) == (False, True)
    second.stop()
    assert not renewed.valid


def test_an_object_whose_entry_failed_leaves_no_block_of_another_thread(
    memory: quorlock.Client,
) -> None:
    def fail() -> None:
        with pytest.raises(RuntimeError, match="not clear which block"):
            try:
                service.start()
            finally:
                service.stop()

    service = Service(memory.semaphore("s", limit=1, wait=0))
    lease = service.start()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(fail).result(TIMEOUT)
    assert lease.valid
    service.stop()
    assert not lease.valid


def test_an_object_whose_entry_failed_leaves_no_block_of_another_task(
    memory: quorlock.Client,
) -> None:
    semaphore = memory.semaphore("s", limit=1, wait=0)

    async def stop() -> None:
        await semaphore.__aexit__(None, None, None)

    async def fail() -> None:
        with pytest.raises(RuntimeError, match="not clear which block"):
            try:
                await semaphore.__aenter__()
            finally:
                await stop()

    async def main() -> None:
        lease = await semaphore.__aenter__()
        # The context of the task is a copy of this one.
        await asyncio.create_task(fail())
        assert lease.valid
        await stop()
        assert not lease.valid

    asyncio.run(main())


def test_an_object_whose_entry_failed_leaves_no_block_of_another_object(
    memory: quorlock.Client,
) -> None:
    semaphore = memory.semaphore("s", limit=1, wait=0)
    first, second = Service(semaphore), Service(semaphore)
    lease = first.start()
    with pytest.raises(quorlock.LockTimeoutError):
        second.start()
    with pytest.raises(RuntimeError, match="not clear which block"):
        second.stop()
    assert lease.valid
    first.stop()
    assert not lease.valid


def test_a_block_of_a_stack_is_left_only_by_the_stack(memory: quorlock.Client) -> None:
    def stop_twice() -> None:
        with contextlib.ExitStack() as stack:
            lease = stack.enter_context(semaphore)
            service.start()
            service.stop()
            with pytest.raises(RuntimeError, match="not clear which block"):
                service.stop()
            assert lease.valid
        assert not lease.valid

    semaphore = memory.semaphore("s", limit=4)
    service = Service(semaphore)
    lease = service.start()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(stop_twice).result(TIMEOUT)
    assert lease.valid
    service.stop()


def test_consecutive_runs_of_a_loop_in_one_context_leave_the_block(
    memory: quorlock.Client,
) -> None:
    lock = memory.lock("r")

    async def stop(lock: quorlock.Lock) -> None:
        await lock.__aexit__(None, None, None)

    with asyncio.Runner() as runner:
        lease = runner.run(lock.__aenter__())
        assert lease.valid
        runner.run(stop(lock))
        assert not lease.valid


def test_test_cases_of_unittest_leave_their_blocks(memory: quorlock.Client) -> None:
    semaphore = memory.semaphore("s", limit=4)
    leases: list[quorlock.Lease] = []

    class Case(unittest.TestCase):
        def runTest(self) -> None:  # noqa: N802
            leases.extend(self.enterContext(semaphore) for _ in range(2))

    class AsyncCase(unittest.IsolatedAsyncioTestCase):
        async def asyncSetUp(self) -> None:
            leases.append(await self.enterAsyncContext(semaphore))

        async def runTest(self) -> None:  # noqa: N802
            leases.append(await self.enterAsyncContext(semaphore))

    for case in (Case(), AsyncCase()):
        result = case.run()
        assert result is not None
        assert result.wasSuccessful(), result.errors
    assert [lease.valid for lease in leases] == [False] * 4
    assert memory.stats().dropped == 0


def test_a_call_that_leaves_no_block_keeps_no_variable_of_another_thread_alive(
    memory: quorlock.Client,
) -> None:
    semaphore = memory.semaphore("s", limit=4)
    variable = Service(semaphore)
    alive = weakref.ref(variable)
    with semaphore, ThreadPoolExecutor(1) as pool:
        with pytest.raises(RuntimeError, match="not clear which block"):
            pool.submit(Service(semaphore).stop).result(TIMEOUT)
        del variable
        gc.collect()
        assert alive() is None


def test_threads_that_share_an_object_leave_their_own_blocks(memory: quorlock.Client) -> None:
    def run(name: str) -> None:
        lease = service.start()
        both.wait(TIMEOUT)
        service.stop()
        left[name] = not lease.valid
        both.wait(TIMEOUT)

    service = Service(memory.semaphore("s", limit=4))
    both, left = threading.Barrier(2), dict[str, bool]()
    threads = [threading.Thread(target=run, args=[name]) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert left == {"a": True, "b": True}

    async def task() -> bool:
        lease = service.start()
        await asyncio.sleep(0.01)
        service.stop()
        return not lease.valid

    async def main() -> None:
        assert all(await asyncio.gather(task(), task()))

    with pytest.warns(quorlock.EventLoopBlockedWarning):
        asyncio.run(main())


def test_a_lost_block_is_left_and_not_the_next_one(servers: Servers) -> None:
    lock = quorlock.Client(servers.urls, ttl=2).lock("r")
    first, second = contextlib.ExitStack(), contextlib.ExitStack()
    lost = first.enter_context(lock)
    steal(servers, "r")
    assert lost.wait_lost(TIMEOUT)
    for server in servers:
        server.command("DEL", "r")
    held = second.enter_context(lock)
    with pytest.raises(quorlock.LeaseLostError):
        first.close()
    assert held.valid
    second.close()
    assert not held.valid


def test_the_blocks_of_one_stack_are_left_from_the_innermost(memory: quorlock.Client) -> None:
    semaphore = memory.semaphore("s", limit=4)
    with contextlib.ExitStack() as stack:
        leases = [stack.enter_context(semaphore) for _ in range(3)]
        moved = stack.pop_all()
    left: list[list[bool]] = []
    moved.callback(lambda: left.append([lease.valid for lease in leases]))
    # Also in another thread.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(moved.close).result(TIMEOUT)
    assert left == [[True, True, True]]
    assert not any(lease.valid for lease in leases)


def test_a_thread_that_entered_no_block_leaves_none(memory: quorlock.Client) -> None:
    lock = memory.lock("r", wait=0)

    def fail() -> None:
        with pytest.raises(quorlock.LockTimeoutError):
            lock.__enter__()
        with pytest.raises(RuntimeError, match="not clear which block"):
            lock.__exit__(None, None, None)

    with pytest.raises(RuntimeError, match="no block of this lock is open"):
        lock.__exit__(None, None, None)
    with lock as lease:
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
        assert lease.valid


def test_executors_and_event_loops_are_no_owners_of_a_block(memory: quorlock.Client) -> None:
    lock = memory.lock("r")
    with ThreadPoolExecutor(1) as pool:
        lease = pool.submit(lock.__enter__).result(TIMEOUT)
        pool.submit(lock.__exit__, None, None, None).result(TIMEOUT)
        assert not lease.valid
        semaphore = memory.semaphore("s", limit=2)
        leases = [pool.submit(semaphore.__enter__).result(TIMEOUT) for _ in range(2)]
        with pytest.raises(RuntimeError, match="not clear which block"):
            pool.submit(semaphore.__exit__, None, None, None).result(TIMEOUT)
        assert all(lease.release() for lease in leases)

    async def main() -> None:
        lease = await asyncio.wait_for(lock.__aenter__(), TIMEOUT)
        await asyncio.wait_for(lock.__aexit__(None, None, None), TIMEOUT)
        assert not lease.valid

    if sys.version_info >= (3, 12):  # Before, wait_for runs each coroutine in a task of its own.
        asyncio.run(main())
    with asyncio.Runner() as runner:
        lease = runner.run(lock.__aenter__())
        runner.run(lock.__aexit__(None, None, None))
        assert not lease.valid


def test_a_call_that_may_mean_several_blocks_leaves_none(memory: quorlock.Client) -> None:
    semaphore = memory.semaphore("s", limit=4)

    def leave() -> None:
        semaphore.__exit__(None, None, None)

    lease = semaphore.__enter__()
    leave()
    assert not lease.valid
    stacks = contextlib.ExitStack(), contextlib.ExitStack()
    leases = [stack.enter_context(semaphore) for stack in stacks]
    with pytest.raises(RuntimeError, match="not clear which block"):
        leave()
    assert all(lease.valid for lease in leases)
    for stack in stacks:
        stack.close()


def test_an_async_block_that_nobody_can_leave_cancels_nobody(memory: quorlock.Client) -> None:
    async def enter() -> None:
        stack = contextlib.AsyncExitStack()
        await stack.enter_async_context(memory.lock("r", ttl=1, max_hold=2))

    async def main() -> None:
        gc.collect()
        await enter()
        with pytest.warns(quorlock.LeaseDroppedWarning, match="the lease of 'r' was dropped"):
            gc.collect()
        assert memory.stats().dropped == 1
        # Another holder has the lock when the dropped lease has ended.
        async with memory.lock("r"):
            pass

    asyncio.run(main())


def test_a_client_does_not_await_when_its_coroutine_is_closed() -> None:
    async def use() -> None:
        async with quorlock.Client(["memory://closed coroutine"]) as client:
            clients.append(client)
            await asyncio.get_running_loop().create_future()

    async def main() -> None:
        coroutine = use()
        coroutine.send(None)
        coroutine.close()

    clients: list[quorlock.Client] = []
    asyncio.run(main())
    assert clients[0].closed
