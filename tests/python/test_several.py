"""Several resources in one lease, on real servers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from nodes import is_free, keys, steal
from servers import Servers
from waiting import TIMEOUT, wait_until, wait_until_async

import quorlock


@pytest.fixture
def client(servers: Servers) -> Iterator[quorlock.Client]:
    with quorlock.Client(servers.urls, wait=TIMEOUT) as client:
        yield client


def test_a_lease_has_all_resources_and_their_fences(client: quorlock.Client) -> None:
    lock = client.lock("b", "a")
    assert repr(lock) == "<quorlock.Lock on 'b', 'a'>"
    with lock as lease:
        assert lease.resources == ("b", "a")
        fences = lease.fences
        assert list(fences) == ["b", "a"]
        assert f"'b' (fence {fences['b']}), 'a' (fence {fences['a']}), valid" in repr(lease)
        fences.clear()
        assert list(lease.fences) == ["b", "a"], "`fences` returned the same dict twice"
        with pytest.raises(quorlock.ConfigError, match="`fences`") as caught:
            _ = lease.fence
    assert caught.value.resources == ("b", "a")
    with client.lock("a") as lease:
        assert lease.fences == {"a": lease.fence}
        assert lease.fence > fences.get("a", 0)
        assert repr(lease).startswith(f"<quorlock.Lease of 'a' (fence {lease.fence}), valid for")


def test_resources_are_acquired_all_or_none(client: quorlock.Client, servers: Servers) -> None:
    with client.lock("b") as held:
        wait_until(lambda: all(server.command("GET", "b") == held.token for server in servers))
        for wait in (0, 0.3):
            with pytest.raises(quorlock.LockTimeoutError) as caught:
                client.lock("a", "b", "c", wait=wait).acquire()
            assert caught.value.resources == ("a", "b", "c")
            assert caught.value.resource == "a"
            wait_until(lambda: keys(servers) == ["b"] * 3)
        with client.lock("a", wait=0), client.lock("c", wait=0):
            pass


def test_a_lease_of_two_resources_excludes_leases_of_either(
    client: quorlock.Client, servers: Servers
) -> None:
    with client.lock("a", "b"):
        for resources in (["a"], ["b"], ["b", "c"], ["b", "a"]):
            with pytest.raises(quorlock.LockTimeoutError):
                client.lock(*resources, wait=0).acquire()
            assert client.lock(*resources).locked()
        with client.lock("c", wait=0):
            assert not client.lock("d").locked()
    wait_until(lambda: not keys(servers))


def test_a_waiter_for_two_resources_gets_them_when_both_are_free(client: quorlock.Client) -> None:
    first, second = client.lock("a").acquire(), client.lock("b").acquire()
    won: list[quorlock.Lease] = []
    waiter = threading.Thread(target=lambda: won.append(client.lock("b", "a").acquire()))
    waiter.start()
    assert first.release()
    assert not won
    assert second.release()
    waiter.join(TIMEOUT)
    [lease] = won
    assert lease.valid
    assert lease.fences["a"] > first.fence
    assert lease.fences["b"] > second.fence


def test_threads_with_opposite_orders_do_not_deadlock(client: quorlock.Client) -> None:
    inside: dict[str, int] = {"a": 0, "b": 0, "c": 0}
    overlaps: list[str] = []
    last: dict[str, int] = {}

    def work(*resources: str) -> None:
        lock = client.lock(*resources)
        for _ in range(25):
            with lock as lease:
                for resource, fence in lease.fences.items():
                    inside[resource] += 1
                    if inside[resource] > 1 or fence <= last.get(resource, 0):
                        overlaps.append(resource)
                    last[resource] = fence
                lease.check()
                for resource in resources:
                    inside[resource] -= 1

    orders = [("a", "b"), ("b", "a"), ("b", "c"), ("c", "b", "a")]
    threads = [threading.Thread(target=work, args=order) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive()
    assert not overlaps
    assert set(last) == {"a", "b", "c"}


def test_leaving_with_after_one_resource_was_lost_raises(
    client: quorlock.Client, servers: Servers
) -> None:
    with pytest.raises(quorlock.LeaseLostError, match="majority") as caught:
        with client.lock("a", "b"):
            wait_until(lambda: len(keys(servers)) == 6)
            for server in list(servers)[:2]:
                server.command("DEL", "b")
    assert caught.value.resources == ("a", "b")
    wait_until(lambda: not keys(servers))


def test_a_collected_lease_does_not_block_its_resources_for_long(
    client: quorlock.Client, servers: Servers
) -> None:
    client.lock("a", "b").acquire()
    wait_until(lambda: is_free(servers, "a") and is_free(servers, "b"))


def test_a_decorated_function_holds_all_resources(client: quorlock.Client) -> None:
    @client.lock("a", "b", wait=0)
    def work(factor: int) -> int:
        assert client.lock("a").locked()
        assert client.lock("b").locked()
        return 2 * factor

    assert work(21) == 42
    assert not client.lock("a", "b").locked()


def test_several_resources_in_an_event_loop(client: quorlock.Client, servers: Servers) -> None:
    async def main() -> None:
        lease = await client.lock("a", "b").acquire_async()
        assert await client.lock("b").locked_async()
        assert await lease.release_async()
        async with client.lock("b", "a", wait=0) as lease:
            assert list(lease.fences) == ["b", "a"]
            await lease.extend_async()
        with pytest.raises(quorlock.LeaseLostError) as caught:
            async with client.lock("a", "b", ttl=0.6):
                steal(servers, "b")
                await asyncio.sleep(TIMEOUT)
        assert caught.value.resources == ("a", "b")

    asyncio.run(main())
    wait_until(lambda: is_free(servers, "a"))
    assert [server.command("GET", "b") for server in servers] == ["thief"] * 3


def test_a_cancelled_acquire_leaves_no_key_of_any_resource(
    client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        async with client.lock("b"):
            waiting = asyncio.create_task(client.lock("a", "b").acquire_async())
            await wait_until_async(lambda: "{b}:queue" in keys(servers))
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    asyncio.run(main())
    wait_until(lambda: not keys(servers))


@pytest.mark.parametrize("resource", ["", 7, None, b"r", ["a", "b"], "\ud800"])
def test_each_resource_must_be_a_non_empty_string(resource: Any) -> None:
    with pytest.raises(quorlock.ConfigError, match="resource 2 must be a string"):
        quorlock.Client(["memory://a"]).lock("r", resource)
