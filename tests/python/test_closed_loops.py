"""Event loops that are closed or discarded while they run acquires."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator

import pytest
import uvloop
from nodes import is_free
from servers import Servers
from waiting import wait_until

import quorlock


class WatchesNoSockets(asyncio.SelectorEventLoop):
    """An event loop that cannot watch sockets, like the default one on Windows."""

    def add_reader(self, *_: object) -> None:
        raise NotImplementedError


@pytest.fixture
def client(servers: Servers) -> Iterator[quorlock.Client]:
    with quorlock.Client(servers.urls, wait=None) as client:
        yield client


@pytest.fixture(autouse=True)
def collect_abandoned_tasks() -> Iterator[None]:
    """Collects the task that the test abandons, which is in a reference cycle.

    asyncio logs that the task was pending. Otherwise it would do so later, during another test or
    between two tests, when pytest does not capture the log.
    """
    yield
    gc.collect()


@pytest.fixture(
    params=[asyncio.new_event_loop, uvloop.new_event_loop, WatchesNoSockets],
    ids=["asyncio", "uvloop", "no sockets"],
)
def loop(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoop:
    loop: asyncio.AbstractEventLoop = request.param()
    return loop


def wait_in(
    loop: asyncio.AbstractEventLoop, client: quorlock.Client
) -> asyncio.Task[quorlock.Lease]:
    """Returns a task that waits for the lock. The loop is stopped while the task waits."""
    task = loop.create_task(client.lock("r").acquire_async())

    async def wait_for_waiter() -> None:
        while client.stats().waiting == 0:
            await asyncio.sleep(0.001)

    loop.run_until_complete(wait_for_waiter())
    return task


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_closed_loop_cancels_its_waiters(
    loop: asyncio.AbstractEventLoop, client: quorlock.Client
) -> None:
    holder = client.lock("r").acquire()
    task = wait_in(loop, client)
    loop.close()
    # The waiter is cancelled while the lock is still held.
    wait_until(lambda: client.stats().waiting == 0)
    wait_until(lambda: client.stats().cancelled == 1)
    assert holder.release()
    assert client.stats().held == 0
    with client.lock("r", wait=10):
        pass
    assert not task.done()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_lease_not_delivered_before_the_loop_is_closed_is_released(
    loop: asyncio.AbstractEventLoop, client: quorlock.Client, servers: Servers
) -> None:
    holder = client.lock("r").acquire()
    task = wait_in(loop, client)
    assert holder.release()
    # The acquire succeeds while the loop is not running.
    wait_until(lambda: client.stats().held == 1)
    loop.close()
    wait_until(lambda: is_free(servers, "r"))
    assert not task.done()


# Not with uvloop, whose event loops keep themselves alive until they are closed.
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, WatchesNoSockets])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_discarded_loop_cancels_its_waiters(
    new_loop: Callable[[], asyncio.AbstractEventLoop], client: quorlock.Client
) -> None:
    holder = client.lock("r").acquire()
    wait_in(new_loop(), client)
    gc.collect()
    wait_until(lambda: client.stats().waiting == 0)
    assert holder.release()
    assert client.stats().held == 0
