"""`heartbeat_timeout`: a lease whose holder hangs is not renewed. `heartbeat.rs` in
`core/tests/test_nodes` tests the rule; these tests are about the forms that only Python has."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from quorlock import Client, Lease, LeaseLostError, current_lease
from quorlock.testing import Nodes

TIMEOUT = 3_600
"""Seconds. Longer than the ttl, so that the lease is renewed several times before the timeout."""


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    with Nodes(3) as nodes:
        yield nodes


@pytest.fixture
def client(nodes: Nodes) -> Client:
    return nodes.client(ttl=60, max_hold=None, heartbeat_timeout=timedelta(seconds=TIMEOUT))


def hang(nodes: Nodes, lease: Lease) -> None:
    """Lets time pass until the lease is lost, because there is no heartbeat."""
    nodes.advance(TIMEOUT + 60)
    assert lease.wait_lost(60)


def test_a_holder_that_hangs_is_told_why_it_has_lost_the_lock(nodes: Nodes, client: Client) -> None:
    lost: list[LeaseLostError] = []
    with pytest.raises(LeaseLostError, match="no heartbeat for 1 h") as raised:
        with client.lock("r") as lease:
            lease.on_lost(lost.append)
            hang(nodes, lease)
    copied = pickle.loads(pickle.dumps(raised.value))
    assert raised.value.reason == copied.reason == "no_heartbeat"
    assert client.stats().no_heartbeat == 1
    with client.lock("r") as following:
        assert following.fence > lease.fence
    with pytest.raises(LeaseLostError, match="was released") as raised:
        following.heartbeat()
    assert raised.value.reason == "released"


def test_each_item_of_a_loop_is_a_heartbeat(nodes: Nodes, client: Client) -> None:
    lease = client.lock("r").acquire()
    for number in lease.heartbeats(range(5)):
        nodes.advance(TIMEOUT - 60)
        assert lease.valid, number
    done = []
    with pytest.raises(LeaseLostError, match="no heartbeat"):
        for number in lease.heartbeats(iter(range(5))):
            done.append(number)
            hang(nodes, lease)
    assert done == [0], "no work begins after the loss"
    with pytest.raises(TypeError, match="not iterable"):
        lease.heartbeats(5)  # type: ignore[call-overload]


def test_each_item_of_an_async_loop_is_a_heartbeat(nodes: Nodes, client: Client) -> None:
    async def numbers() -> AsyncIterator[int]:
        for number in range(5):
            yield number

    async def work() -> list[int]:
        done = []
        lease = await client.lock("r").acquire_async()
        async for number in lease.heartbeats(numbers()):
            await asyncio.to_thread(nodes.advance, TIMEOUT - 60)
            done.append(number)
        assert await lease.release_async()
        return done

    assert asyncio.run(work()) == [0, 1, 2, 3, 4]


class BothWays:
    """Items for `for` and for `async for`, like a queryset of Django."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(3))

    async def __aiter__(self) -> AsyncIterator[int]:
        for number in self:
            yield number


def test_items_of_both_kinds_of_loops_stay_so(client: Client) -> None:
    async def work() -> list[int]:
        return [number async for number in lease.heartbeats(BothWays())]

    with client.lock("r") as lease:
        assert [number for number in lease.heartbeats(BothWays())] == [0, 1, 2]  # noqa: C416
        assert asyncio.run(work()) == [0, 1, 2]


def test_a_decorated_function_and_another_thread_send_heartbeats(
    nodes: Nodes, client: Client
) -> None:
    @client.lock("r")
    def work() -> bool:
        lease = current_lease()
        with ThreadPoolExecutor(1) as pool:
            for _ in range(5):
                nodes.advance(TIMEOUT - 60)
                pool.submit(lease.heartbeat).result()
        return lease.valid

    assert work()


def test_a_warning_names_the_lock_after_half_of_the_timeout(
    nodes: Nodes, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    def warnings() -> list[str]:
        return [each.getMessage() for each in caplog.records if "no heartbeat" in each.getMessage()]

    with caplog.at_level(logging.WARNING, "quorlock"), client.lock("orders:42") as lease:
        nodes.advance(TIMEOUT / 2 - 60)
        assert warnings() == []
        nodes.advance(120)
        nodes.advance(120)
        lease.heartbeat()
    assert len(warnings()) == 1
    assert "orders:42" in warnings()[0]
