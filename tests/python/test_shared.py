"""Locks in shared mode: readers and writers."""

from __future__ import annotations

import asyncio
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
from nodes import is_free
from servers import Servers
from waiting import TIMEOUT, wait_until

import quorlock


@pytest.fixture
def client(servers: Servers) -> Iterator[quorlock.Client]:
    with quorlock.Client(servers.urls, ttl=600, wait=0, node_timeout=5) as client:
        yield client


def test_a_lease_shows_its_changes_of_mode(client: quorlock.Client) -> None:
    lost: list[Any] = []
    with client.lock("r") as lease:
        lease.on_lost(lost.append)
        assert (lease.mode, lease.modes) == ("exclusive", {"r": "exclusive"})
        lease.downgrade()
        assert (lease.mode, lease.modes, lease.valid) == ("shared", {"r": "shared"}, True)
        with client.lock("r", mode="shared"):
            assert lease.try_upgrade() is None
        upgraded = lease.try_upgrade()
        assert upgraded is not None
        with pytest.raises(quorlock.LeaseLostError, match="was upgraded: use the new lease"):
            lease.check()
        with upgraded:
            assert (upgraded.mode, upgraded.resources) == ("exclusive", ("r",))
            with pytest.raises(quorlock.ConfigError, match="it is exclusive already"):
                upgraded.try_upgrade()
    assert lost == []


def test_dead_writer_does_not_hold_readers_up(client: quorlock.Client, servers: Servers) -> None:
    wait = "import sys, quorlock; quorlock.Client(sys.argv[1:]).lock('r', wait=None).acquire()"

    def waiting(count: int) -> bool:
        return all(server.command("ZCARD", "{r}:queue") == count for server in servers)

    def late() -> tuple[float, int]:
        """Returns how long a reader waits on after the writer before it was killed, and its
        rounds in that time."""
        writer = subprocess.Popen([sys.executable, "-c", wait, *servers.urls])
        wait_until(lambda: waiting(1))
        reader = pool.submit(client.lock("r", mode="shared", wait=TIMEOUT).acquire)
        wait_until(lambda: waiting(2))
        rounds = client.stats().rounds
        writer.kill()
        killed = time.monotonic()
        lease = reader.result(TIMEOUT)
        took = time.monotonic() - killed
        writer.wait()
        assert lease.release()
        return took, client.stats().rounds - rounds

    with client.lock("r", mode="shared"), ThreadPoolExecutor() as pool:
        took, rounds = zip(*[late() for _ in range(5)], strict=True)
    # The reader's next round is due after 50 ms, and removes the entry of a writer that does not
    # listen. The entry would last for a minute. An idle machine takes 37 to 63 ms.
    assert statistics.median(took) < 1, took
    assert statistics.median(rounds) <= 2, rounds
    wait_until(lambda: is_free(servers, "r"))


def test_asyncio_forms(client: quorlock.Client, servers: Servers) -> None:
    async def run() -> None:
        async with client.lock("r") as lease:
            await lease.downgrade_async()
            upgraded = await lease.try_upgrade_async()
            assert upgraded is not None
            async with upgraded:
                assert client.lock("r", mode="shared").try_acquire() is None
            assert await client.lock("r", mode="shared").locked_async() is False

    asyncio.run(run())
    wait_until(lambda: is_free(servers, "r"))


def test_cancelled_upgrade_leaves_the_reader_or_nothing(
    client: quorlock.Client, servers: Servers
) -> None:
    async def run() -> None:
        for turns in range(20):
            lease = await client.lock("r", mode="shared", wait=TIMEOUT).acquire_async()
            task = asyncio.ensure_future(lease.try_upgrade_async())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            try:
                upgraded = await task
            except asyncio.CancelledError:
                await lease.release_async()
            else:
                assert upgraded is not None
                assert await upgraded.release_async()

    asyncio.run(run())
    wait_until(lambda: is_free(servers, "r"))


def test_blocking_upgrade_is_refused(client: quorlock.Client) -> None:
    with client.lock("r", mode="shared") as lease:
        with pytest.raises(quorlock.ConfigError, match="use try_upgrade") as refused:
            client.lock("r", wait=None).acquire()
        assert refused.value.resources == ("r",)
        assert client.lock("r").try_acquire() is None
        client.lock("r", mode="shared").acquire().release()
        assert lease.valid


def test_blocking_upgrade_is_refused_in_a_task(client: quorlock.Client) -> None:
    async def run() -> None:
        async with client.lock("r", mode="shared"):
            with pytest.raises(quorlock.ConfigError, match="use try_upgrade"):
                await client.lock("r", wait=None).acquire_async()
            # Another task may wait: this one goes on, and leaves the block.
            other = asyncio.ensure_future(client.lock("r", wait=TIMEOUT).acquire_async())
            while (await client.status_async("r")).waiters != 1:
                await asyncio.sleep(0.01)
        assert await (await other).release_async()

    asyncio.run(run())


def test_pool_thread_may_wait_for_a_block_that_another_thread_leaves(
    client: quorlock.Client,
) -> None:
    """A web framework enters a dependency on one thread of its pool, and leaves it on another."""

    def dependency() -> Iterator[quorlock.Lease]:
        with client.lock("r", mode="shared") as lease:
            yield lease

    def write(wait: float) -> int:
        with client.lock("r", wait=wait) as lease:
            return lease.fence

    def submit(pool: ThreadPoolExecutor, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        return pool.submit(copy_context().run, call, *arguments)

    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        using = dependency()
        lease = submit(one, next, using).result(TIMEOUT)
        writing = submit(one, write, TIMEOUT)
        wait_until(lambda: client.status("r").waiters == 1)
        submit(other, next, using, None).result(TIMEOUT)
        assert writing.result(TIMEOUT) > lease.fence


def test_block_that_a_thread_entered_in_another_block_is_found(client: quorlock.Client) -> None:
    with client.lock("r", mode="shared"), client.lock("s"), client.lock("t", mode="shared"):
        for resources in (["r"], ["t"], ["q", "r"]):
            with pytest.raises(quorlock.ConfigError, match="use try_upgrade"):
                client.lock(*resources, wait=None).acquire()
        # The innermost block does not stand in the way, an outer one does.
        with pytest.raises(quorlock.ConfigError, match="use try_upgrade"):
            client.lock("r", "t", mode={"t": "shared"}, wait=None).acquire()
        with pytest.raises(quorlock.LockTimeoutError):
            client.lock("s").acquire()
    with client.lock("r") as lease:
        lease.downgrade()
        with pytest.raises(quorlock.ConfigError, match="use try_upgrade"):
            client.lock("r", wait=None).acquire()


def test_caller_may_wait_for_a_shared_lease_that_others_can_end(client: quorlock.Client) -> None:
    detached = client.lock("r", mode="shared", ttl=2).acquire()
    detached.detach(within=2)
    with client.lock("r", wait=TIMEOUT) as writer:
        assert writer.fence > detached.fence
    shared = client.lock("r", mode="shared").acquire()
    threading.Timer(0.2, shared.release).start()
    client.lock("r", wait=TIMEOUT).acquire().release()


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("read", 'mode must be "exclusive" or "shared", or a dict with one of these for each '
         'resource, not "read"'),
        ({"r": "write"}, 'mode of "r" must be "exclusive" or "shared", not "write"'),
        ({1: "shared"}, "a dict with keys that are no strings"),
    ],
)  # fmt: skip
def test_invalid_mode_is_a_config_error(client: quorlock.Client, mode: Any, message: str) -> None:
    with pytest.raises(quorlock.ConfigError) as caught:
        client.lock("r", mode=mode)
    assert message in str(caught.value)


def test_mode_is_no_option_of_a_client_an_election_or_an_adoption(client: quorlock.Client) -> None:
    shared: Any = {"mode": "shared"}
    with pytest.raises(quorlock.ConfigError):
        quorlock.Client(["memory://a"], **shared)
    with pytest.raises(quorlock.ConfigError, match="there is one leader"):
        client.elect("r", **shared)
    text = client.lock("r").acquire().detach()
    with pytest.raises(quorlock.ConfigError, match="the lease keeps its mode"):
        client.adopt(text, **shared)
    client.adopt(text).release()


def test_documented_permissions_suffice(servers: Servers) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "connections.md").read_text()
    rule = re.search(r"ACL SETUSER locker (.*)", page)
    assert rule
    for server in servers:
        # An adoption may look at what the nodes store.
        server.command("ACL", "SETUSER", "locker", *rule[1].split(), "+zcard")
    urls = [f"redis://locker:secret@127.0.0.1:{server.port}" for server in servers]
    with quorlock.Client(urls, key_prefix="app:", ttl=600) as client, ThreadPoolExecutor() as pool:
        lease = client.lock("r").acquire()
        waiting = pool.submit(client.lock("r", mode="shared", wait=TIMEOUT).acquire)
        wait_until(lambda: all(server.command("ZCARD", "{app:r}:queue") for server in servers))
        lease.downgrade()
        reader = waiting.result(TIMEOUT)
        reader.extend()
        adopted = client.adopt(reader.detach())
        lease.release()
        wait_until(lambda: (upgraded := adopted.try_upgrade()) is not None and upgraded.release())
    for server in servers:
        assert server.command("ACL", "LOG") == []
