"""Blocks that are entered or left without a `with` statement: the right lease ends, or none."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Iterator

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
    thread = threading.Thread(target=first.stop)
    thread.start()
    thread.join()
    assert (held.valid, renewed.valid) == (False, True)
    second.stop()
    assert not renewed.valid


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
    moved.close()
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
