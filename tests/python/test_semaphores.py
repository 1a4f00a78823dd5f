"""Semaphores: at most so many permits of a resource are held at the same time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from nodes import keys
from servers import Servers
from waiting import TIMEOUT, wait_until, wait_until_async

import quorlock
from quorlock.testing import Nodes


@pytest.fixture
def client(servers: Servers) -> Iterator[quorlock.Client]:
    with quorlock.Client(servers.urls, ttl=600, wait=0, node_timeout=5) as client:
        yield client


def wait_for_waiters(semaphore: quorlock.Semaphore, count: int) -> None:
    wait_until(lambda: semaphore.status().waiters == count)


def test_as_many_permits_are_held_as_the_limit_allows(
    client: quorlock.Client, servers: Servers
) -> None:
    semaphore = client.semaphore("api", limit=3)
    assert (semaphore.resource, semaphore.limit, semaphore.permits) == ("api", 3, 1)
    assert repr(semaphore) == "<quorlock.Semaphore on 'api', limit 3>"
    with semaphore as one, semaphore as two:
        three = semaphore.acquire()
        assert {one.slot, two.slot, three.slot} == {0, 1, 2}
        assert one.slots == (one.slot,)
        assert one.resources == ("api",)
        assert len({lease.token for lease in (one, two, three)}) == 3
        assert semaphore.try_acquire() is None
        with pytest.raises(quorlock.LockTimeoutError, match="its limit is 3"):
            semaphore.acquire()
        fence = three.fence
        assert three.release()
        again = semaphore.try_acquire()
        assert again is not None
        assert again.slot == three.slot
        assert again.fence > fence
        again.extend(700)
        assert again.release()
    wait_until(lambda: keys(servers) == [])


def test_permits_are_granted_all_or_none(client: quorlock.Client) -> None:
    semaphore = client.semaphore("api", limit=5, permits=3)
    assert semaphore.permits == 3
    with semaphore as many:
        assert len(many.slots) == 3
        assert list(many.slots) == sorted(many.slots)
        with pytest.raises(quorlock.ConfigError, match="has 3 slots: use `slots`"):
            _ = many.slot
        assert semaphore.try_acquire() is None
        with semaphore.acquire(permits=2) as rest:
            assert sorted(many.slots + rest.slots) == [0, 1, 2, 3, 4]


def test_a_lock_has_no_slot_and_is_independent(client: quorlock.Client) -> None:
    with client.semaphore("r", limit=1), client.lock("r") as lease:
        assert lease.slots == ()
        with pytest.raises(quorlock.ConfigError, match="no slot: it is a lease of a lock"):
            _ = lease.slot


def test_a_waiter_gets_the_next_permit(client: quorlock.Client) -> None:
    semaphore = client.semaphore("api", limit=1, wait=TIMEOUT)
    first = semaphore.acquire()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(semaphore.acquire)
        wait_for_waiters(semaphore, 1)
        assert semaphore.try_acquire() is None
        assert first.release()
        assert waiting.result().release()


def test_the_limit_holds_among_threads_and_clients(servers: Servers) -> None:
    holders: dict[int, int] = {}
    most = 0
    mutex = threading.Lock()

    def work(client: quorlock.Client) -> None:
        nonlocal most
        for _ in range(10):
            with client.semaphore("api", limit=3) as lease:
                with mutex:
                    assert lease.slot not in holders
                    holders[lease.slot] = threading.get_ident()
                    most = max(most, len(holders))
                with mutex:
                    del holders[lease.slot]

    clients = [quorlock.Client(servers.urls, ttl=600, wait=TIMEOUT) for _ in range(2)]
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(work, client) for client in clients * 4]:
            done.result()
    for client in clients:
        client.close()
    assert most <= 3
    wait_until(lambda: keys(servers) == [])


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
        # One with a smaller limit sees all holders, too.
        assert len(client.semaphore("api", limit=1).status().holders) == 3
        servers[2].kill()
        status = semaphore.status()
        assert status.nodes[2].held is None
        assert status.nodes[2].outcome != "confirmed"
        servers[1].kill()
        with pytest.raises(quorlock.QuorumError):
            semaphore.status()


def test_a_detached_permit_is_adopted(client: quorlock.Client) -> None:
    semaphore = client.semaphore("api", limit=3)
    lease = semaphore.acquire(permits=2)
    adopted = client.adopt(lease.detach())
    assert adopted.slots == lease.slots
    assert adopted.fence > lease.fence
    assert semaphore.acquire(permits=1).release()
    assert semaphore.try_acquire() is not None
    assert adopted.release()


def test_a_lease_is_lost_if_another_takes_its_permit(
    client: quorlock.Client, servers: Servers
) -> None:
    semaphore = client.semaphore("api", limit=1, ttl=2)
    with pytest.raises(quorlock.LeaseLostError), semaphore as lease:
        for server in servers:
            server.command("SET", "{api}:permit:0", "thief")
        assert lease.wait_lost(TIMEOUT)


def test_memory_nodes() -> None:
    with quorlock.Client(["memory://semaphores"], wait=0) as client:
        semaphore = client.semaphore("api", limit=2)
        with semaphore as one, semaphore as two:
            assert {one.slot, two.slot} == {0, 1}
            assert semaphore.try_acquire() is None
            assert semaphore.status().free == 0
        assert semaphore.status().free == 2


def test_the_permit_of_a_crashed_holder_expires() -> None:
    with Nodes(3) as nodes:
        client = nodes.client(ttl=10, wait=30)
        semaphore = client.semaphore("api", limit=1)
        crashed = nodes.client(ttl=10).semaphore("api", limit=1, auto_extend=False).acquire()
        assert semaphore.try_acquire() is None
        nodes.advance(11)
        assert not crashed.valid
        with semaphore as lease:
            assert lease.slot == 0
            assert lease.fence > crashed.fence
            nodes.advance(60)
            assert lease.valid
