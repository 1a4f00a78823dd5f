"""Semaphores: at most so many permits of a resource are held at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest
from nodes import keys
from servers import Servers
from waiting import TIMEOUT, wait_until, wait_until_async

import quorlock


@pytest.fixture
def client(servers: Servers) -> Iterator[quorlock.Client]:
    with quorlock.Client(servers.urls, ttl=600, wait=0, node_timeout=5) as client:
        yield client


def test_a_semaphore_and_its_leases_show_their_permits(client: quorlock.Client) -> None:
    semaphore = client.semaphore("api", limit=4, permits=3)
    assert (semaphore.resource, semaphore.limit, semaphore.permits) == ("api", 4, 3)
    assert repr(semaphore) == "<quorlock.Semaphore on 'api', limit 4>"
    with semaphore as many, semaphore.acquire(permits=1) as one:
        assert sorted(many.slots + one.slots) == [0, 1, 2, 3]
        assert list(many.slots) == sorted(many.slots)
        with pytest.raises(quorlock.ConfigError, match="has 3 slots: use `slots`"):
            _ = many.slot
        assert (one.slots, one.resources) == ((one.slot,), ("api",))
        assert semaphore.try_acquire() is None
        with pytest.raises(quorlock.LockTimeoutError, match="its limit is 4"):
            semaphore.acquire()


def test_a_lock_has_no_slot_and_is_independent(client: quorlock.Client) -> None:
    with client.semaphore("r", limit=1), client.lock("r") as lease:
        assert lease.slots == ()
        with pytest.raises(quorlock.ConfigError, match="no slot: it is a lease of a lock"):
            _ = lease.slot


def test_asyncio(servers: Servers) -> None:
    async def main() -> None:
        async with quorlock.Client(servers.urls, ttl=600, wait=TIMEOUT) as client:
            semaphore = client.semaphore("api", limit=2)
            async with semaphore as one, semaphore as two:
                assert {one.slot, two.slot} == {0, 1}
                assert await semaphore.try_acquire_async() is None
                with pytest.raises(quorlock.LockTimeoutError):
                    await semaphore.acquire_async(wait=0)
                waiting = asyncio.create_task(semaphore.acquire_async(permits=2))
                await wait_until_async(lambda: semaphore.status().waiters == 1)
                assert (await semaphore.status_async()).free == 0
            both = await waiting
            assert both.slots == (0, 1)
            waiting = asyncio.create_task(semaphore.acquire_async())
            await wait_until_async(lambda: semaphore.status().waiters == 1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await both.release_async()

    asyncio.run(main())
    wait_until(lambda: keys(servers) == [])


def test_decorators(client: quorlock.Client) -> None:
    semaphore = client.semaphore("api", limit=2)

    @semaphore
    def free() -> int:
        return semaphore.status().free

    @semaphore
    async def free_async() -> int:
        return (await semaphore.status_async()).free

    @client.semaphore(lambda name: f"api:{name}", limit=1)
    def of_name(name: str) -> tuple[int, int]:
        named = [client.semaphore(f"api:{name}", limit=1) for name in ("a", "b")]
        first, second = (each.status().free for each in named)
        return first, second

    assert (free(), asyncio.run(free_async())) == (1, 1)
    assert (of_name("a"), of_name("b")) == ((0, 1), (1, 0))
    with pytest.raises(quorlock.ConfigError, match="limit must be a whole number from 1 to 1024"):
        client.semaphore(lambda name: name, limit=0)
    with pytest.raises(quorlock.ConfigError, match="the resource must be a string, not a list"):
        client.semaphore(cast(Any, lambda: ["a"]), limit=1)(free)()


def test_status(client: quorlock.Client, servers: Servers) -> None:
    semaphore = client.semaphore("api", limit=4, holder="web-1")
    empty = semaphore.status()
    assert (empty.resource, empty.limit, empty.free, empty.waiters) == ("api", 4, 4, 0)
    assert empty.holders == ()
    with semaphore.acquire(permits=2) as lease, client.semaphore("api", limit=4, holder=""):
        wait_until(lambda: [node.held for node in semaphore.status().nodes] == [3, 3, 3])
        status = semaphore.status()
        assert isinstance(status, quorlock.SemaphoreStatus)
        assert status.free == 1
        assert [holder.slot for holder in status.holders if holder.holder == "web-1"] == list(
            lease.slots
        )
        (other,) = (holder for holder in status.holders if holder.holder is None)
        assert other.slot not in lease.slots
        of_lease = next(holder for holder in status.holders if holder.slot == lease.slots[0])
        assert isinstance(of_lease, quorlock.PermitHolder)
        assert of_lease.token == lease.token[:8]
        assert of_lease.fence == lease.fence
        assert of_lease.remaining is not None
        assert 0 < of_lease.remaining <= 600
        node = status.nodes[0]
        assert isinstance(node, quorlock.PermitNode)
        assert (node.address, node.outcome, node.detail) == (client.nodes[0], "confirmed", "")
    servers[2].kill()
    with quorlock.Client(servers.urls, connect_timeout=0.3) as late:
        assert late.semaphore("api", limit=4).status().nodes[2].held is None
