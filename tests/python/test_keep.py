"""Releases that keep the key on the nodes: which ends of a lease do, and what others see."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import warnings
from collections.abc import Iterator
from datetime import timedelta

import pytest
from nodes import is_free, keys
from servers import Servers
from waiting import wait_until

import quorlock

KEEP = 600


@pytest.fixture
def client(servers: Servers) -> Iterator[quorlock.Client]:
    with quorlock.Client(servers.urls, holder="cron-1") as client:
        yield client


def left(servers: Servers, resource: str) -> list[float]:
    """Returns the remaining time of the key on each node, in seconds."""
    return [int(str(server.command("PTTL", resource))) / 1000 for server in servers]


def holder(client: quorlock.Client, resource: str) -> str | None:
    """Returns the name of the holder that an acquire without a wait meets."""
    with pytest.raises(quorlock.LockTimeoutError) as caught:
        client.lock(resource, wait=0).acquire()
    return caught.value.holder


def test_all_blocks_keep_the_key(client: quorlock.Client, servers: Servers) -> None:
    with client.lock("with", keep=KEEP):
        pass
    with pytest.raises(ZeroDivisionError), client.lock("raised", keep=timedelta(seconds=KEEP)):
        print(1 / 0)

    @client.lock("function", keep=KEEP)
    def job() -> None: ...

    @client.lock(lambda name: name, keep=KEEP)
    async def job_of(name: str) -> None: ...

    async def main() -> None:
        async with client.lock("async with", keep=KEEP):
            pass
        async with await client.lock("async lease", keep=KEEP).acquire_async():
            pass
        await job_of("coroutine")
        lease = await client.lock("async release").acquire_async()
        assert await lease.release_async(keep=KEEP)

    job()
    asyncio.run(main())
    with client.lock("lease", keep=KEEP).acquire() as lease:
        pass
    assert not lease.valid
    names = ["with", "raised", "function", "coroutine", "lease"]
    for name in [*names, "async with", "async lease", "async release"]:
        assert holder(client, name) == "cron-1"
        assert sum(KEEP - 60 < each <= KEEP * 1.01 + 1 for each in left(servers, name)) >= 2
        assert client.lock(name).locked()
        assert client.status(name).holder == "cron-1"


def test_a_release_with_none_or_no_time_keeps_nothing(
    client: quorlock.Client, servers: Servers
) -> None:
    lock = client.lock("r", wait=0, keep=KEEP)
    for none in (None, timedelta(0)):
        assert lock.acquire().release(keep=none)
        wait_until(lambda: is_free(servers, "r"))


def test_what_is_no_release_keeps_nothing(servers: Servers) -> None:
    with quorlock.Client(servers.urls, keep=KEEP) as client:

        async def cancelled() -> None:
            for _ in range(50):
                waiting = asyncio.create_task(client.lock("cancelled").acquire_async())
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting

        asyncio.run(cancelled())
        wait_until(lambda: is_free(servers, "cancelled"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", quorlock.LeaseDroppedWarning)
            client.lock("collected", ttl=0.5).acquire()
            gc.collect()
        wait_until(lambda: is_free(servers, "collected"))
    code = """
import quorlock, sys
client = quorlock.Client(sys.argv[1:], keep=600)
lease = client.lock("exit").acquire()
"""
    subprocess.run([sys.executable, "-c", code, *servers.urls], check=True, timeout=60)
    assert "exit" not in keys(servers)
