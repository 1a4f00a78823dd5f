"""`current_lease` returns the lease of the innermost block around the caller."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator

import pytest
from servers import Servers

import quorlock
from quorlock import current_lease


@pytest.fixture
def client(start_servers: Callable[..., Servers]) -> Iterator[quorlock.Client]:
    with quorlock.Client(start_servers(3).urls) as client:
        yield client


def holds_none() -> bool:
    with pytest.raises(RuntimeError, match="no lock is held here"):
        current_lease()
    return True


def test_a_block_has_its_lease(client: quorlock.Client) -> None:
    holds_none()
    with client.lock("outer") as outer:
        assert current_lease() is outer
        with client.semaphore("inner", limit=2) as inner:
            assert current_lease() is inner
        assert current_lease() is outer
    holds_none()


def test_a_block_of_a_lease_has_the_lease(client: quorlock.Client) -> None:
    lease = client.lock("r").acquire()
    holds_none()
    with lease:
        assert current_lease() is lease
    holds_none()
    other = client.lock("r").acquire()
    other.release()
    with pytest.raises(quorlock.LeaseLostError), other:
        pass
    holds_none()


def test_a_block_that_raises_is_left(client: quorlock.Client) -> None:
    with pytest.raises(ZeroDivisionError), client.lock("r"):
        1 / 0  # noqa: B018
    with pytest.raises(ZeroDivisionError), client.lock("r").acquire():
        1 / 0  # noqa: B018
    holds_none()


def test_async_blocks_have_their_leases(client: quorlock.Client) -> None:
    async def main() -> None:
        async with client.lock("outer") as outer:
            lease = await client.lock("inner").acquire_async()
            async with lease:
                assert current_lease() is lease
            assert current_lease() is outer
        holds_none()

    asyncio.run(main())


def test_a_decorated_function_has_the_lease(client: quorlock.Client) -> None:
    @client.lock(lambda order: f"orders:{order}")
    def fence(order: int) -> tuple[str, int]:
        lease = current_lease()
        return lease.resource, lease.fence

    @client.lock("r")
    async def fence_async() -> int:
        await asyncio.sleep(0)
        return current_lease().fence

    resource, first = fence(42)
    assert resource == "orders:42"
    assert fence(42)[1] > first
    assert asyncio.run(fence_async()) > 0
    holds_none()


def test_a_leader_has_the_lease(client: quorlock.Client) -> None:
    assert client.elect("r").run(lambda lease: current_lease() is lease)

    async def lead(lease: quorlock.Lease) -> bool:
        return current_lease() is lease

    assert asyncio.run(client.elect("r").run_async(lead))


def test_tasks_and_threads_have_the_lease_until_the_block_ends(client: quorlock.Client) -> None:
    async def main() -> None:
        ended = asyncio.Event()

        async def child(lease: quorlock.Lease, outer: quorlock.Lease) -> None:
            assert current_lease() is lease
            async with client.lock("of the child") as own:
                assert current_lease() is own
            await ended.wait()
            assert current_lease() is outer

        async with client.lock("outer") as outer:
            async with client.lock("inner") as inner:
                task = asyncio.create_task(child(inner, outer))
                assert await asyncio.to_thread(current_lease) is inner
                await asyncio.sleep(0)
            ended.set()
            await task

    asyncio.run(main())
    with client.lock("r") as lease:
        copy = contextvars.copy_context()
        found: list[bool] = []
        thread = threading.Thread(target=lambda: found.append(holds_none()))
        thread.start()
        thread.join()
        assert found == [True], "a thread of its own has no copy of the context"
        assert copy.run(current_lease) is lease
    copy.run(holds_none)


def test_a_generator_that_is_left_elsewhere_ends_its_block(client: quorlock.Client) -> None:
    def held() -> Generator[quorlock.Lease]:
        with client.lock("r").acquire() as lease:
            yield lease

    generator = held()
    context = contextvars.copy_context()
    lease = context.run(next, generator)
    assert context.run(current_lease) is lease
    generator.close()
    context.run(holds_none)
    assert not lease.valid

    async def held_async() -> AsyncIterator[quorlock.Lease]:
        async with await client.lock("r").acquire_async() as lease:
            yield lease

    async def main() -> None:
        async for lease in held_async():
            assert current_lease() is lease
        holds_none()

    asyncio.run(main())


def test_a_lease_that_was_lost_is_still_the_current_one(client: quorlock.Client) -> None:
    with client.lock("r") as lease:
        lease.release()
        assert current_lease() is lease
        with pytest.raises(quorlock.LeaseLostError):
            current_lease().check()
