"""Leases that are detached and adopted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from nodes import is_free
from servers import Servers
from waiting import TIMEOUT, wait_until

import quorlock


@pytest.fixture
def client(servers: Servers) -> Iterator[quorlock.Client]:
    with quorlock.Client(servers.urls, ttl=600) as client:
        yield client


@pytest.mark.parametrize("within", [None, 30, timedelta(seconds=30)])
def test_a_detached_lease_is_given_up_and_not_lost(
    client: quorlock.Client, within: float | timedelta | None
) -> None:
    lost: list[object] = []
    with client.lock("r").acquire() as lease:
        lease.on_lost(lost.append)
        text = lease.detach(within)
        assert not lease.valid
    with client.adopt(text, holder="worker-1", ttl=5) as adopted:
        assert (adopted.holder, adopted.ttl) == ("worker-1", 5)
        with pytest.raises(quorlock.LeaseLostError, match="worker-1 has adopted it"):
            client.adopt(text)
    assert lost == []


def test_asyncio_forms(client: quorlock.Client, servers: Servers) -> None:
    async def run() -> None:
        async with client.lock("r") as lease:
            text = await lease.detach_async(within=60)
        async with await client.adopt_async(text, wait=0) as adopted:
            assert adopted.fence > lease.fence
        with pytest.raises(quorlock.LeaseLostError):
            await client.adopt_async(text)

    asyncio.run(run())
    wait_until(lambda: is_free(servers, "r"))


def test_cancelled_detach_leaves_no_key_without_a_text(
    client: quorlock.Client, servers: Servers
) -> None:
    async def run() -> None:
        for turns in range(20):
            lease = await client.lock("r").acquire_async()
            task = asyncio.ensure_future(lease.detach_async())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            try:
                text = await task
            except asyncio.CancelledError:
                await lease.release_async()
            else:
                (await client.adopt_async(text)).release()

    asyncio.run(run())
    wait_until(lambda: is_free(servers, "r"))


def test_adopted_lease_is_kept_at_the_end_of_its_block(client: quorlock.Client) -> None:
    with client.adopt(client.lock("r").acquire().detach(), keep=600):
        pass
    with pytest.raises(quorlock.LockTimeoutError):
        client.lock("r", wait=0).acquire()


def test_a_wait_for_a_lease_that_its_own_thread_has_adopted_is_warned_about(
    client: quorlock.Client, caplog: pytest.LogCaptureFixture
) -> None:
    def wait_for_itself() -> None:
        with client.adopt(client.lock("r").acquire().detach()), client.lock("r", wait=None):
            pass

    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(wait_for_itself)
        wait_until(
            lambda: any(vars(record)["event"] == "acquire.reentrant" for record in caplog.records)
        )
        client.close()
        with pytest.raises(quorlock.ClosedError):
            hanging.result(TIMEOUT)


def test_detached_lease_is_collected_without_a_warning(
    client: quorlock.Client, recwarn: pytest.WarningsRecorder
) -> None:
    text = client.lock("r").acquire().detach()
    assert not recwarn.list
    assert client.adopt(text).release()


def test_mistakes(client: quorlock.Client) -> None:
    lease = client.lock("r").acquire()
    for within, message in [(0, "within must be"), ("30", "within must be")]:
        with pytest.raises(quorlock.ConfigError, match=message):
            lease.detach(within)  # type: ignore[arg-type]
    assert lease.valid
    text = lease.detach()
    for wrong in [None, 7, text.encode()]:
        with pytest.raises(quorlock.ConfigError, match="lease text") as caught:
            client.adopt(wrong)  # type: ignore[arg-type]
        assert text not in str(caught.value)
    with pytest.raises(quorlock.ConfigError, match="retry_delay is an option of the client"):
        client.adopt(text, retry_delay=(1, 2))  # type: ignore[call-arg]
    guarded = quorlock.Client(["memory://guarded"], ttl=1, restart_guard=1)
    lease = guarded.lock("r").acquire()
    with pytest.raises(quorlock.ConfigError, match="within must not be longer than restart_guard"):
        lease.detach(within=2)
    guarded.adopt(lease.detach()).release()
