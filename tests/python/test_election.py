"""Elections: candidates, hand-over to a successor by name, and observers."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from nodes import freeze, is_free, listeners, thaw
from servers import Servers
from waiting import wait_until

import quorlock


@pytest.fixture
def client(servers: Servers) -> Iterator[quorlock.Client]:
    with quorlock.Client(servers.urls, ttl=600) as client:
        yield client


def test_a_leader_runs_and_releases(client: quorlock.Client, servers: Servers) -> None:
    election = client.elect("r", holder="a", ttl=5)
    assert election.resource == "r"
    assert repr(election) == "<quorlock.Election for 'r'>"

    def lead(lease: quorlock.Lease) -> int:
        assert (lease.resource, lease.holder, lease.ttl) == ("r", "a", 5)
        assert lease.valid
        assert client.status("r").holder == "a"
        return lease.fence

    first = election.run(lead)
    assert election.run(lead) > first
    with pytest.raises(ZeroDivisionError):
        election.run(lambda _: 1 // 0)
    wait_until(lambda: is_free(servers, "r"))
    stats = client.stats()
    assert (stats.elections, stats.releases, stats.losses) == (3, 3, 0)


def test_asyncio_forms(client: quorlock.Client, servers: Servers) -> None:
    async def successor() -> int:
        async def lead(lease: quorlock.Lease) -> int:
            return lease.fence

        async with quorlock.Client(servers.urls, ttl=600) as other:
            return await other.elect("r", holder="b").run_async(lead)

    async def lead(lease: quorlock.Lease) -> tuple[int, int]:
        following = asyncio.create_task(successor())
        while not await lease.hand_over_async("b"):
            assert lease.valid
        return lease.fence, await following

    fence, next_fence = asyncio.run(client.elect("r", holder="a").run_async(lead))
    assert next_fence > fence
    wait_until(lambda: is_free(servers, "r"))


def test_a_candidate_campaigns_again_after_a_loss(
    client: quorlock.Client, servers: Servers
) -> None:
    """Force-releases the leader twice: once the coroutine is cancelled, once it ends by itself."""
    times: list[int] = []

    async def lead(lease: quorlock.Lease) -> int:
        times.append(lease.fence)
        if len(times) == 1:
            await client.force_release_async("r")
            try:
                await asyncio.sleep(60)
            finally:
                assert not lease.valid
        return len(times)

    assert asyncio.run(client.elect("r", ttl=2).run_async(lead)) == 2

    def lead_in_thread(lease: quorlock.Lease) -> int:
        times.append(lease.fence)
        if len(times) < 5:
            client.force_release("r")
            assert lease.wait_lost(60)
        if len(times) == 4:
            lease.check()
        return len(times)

    assert client.elect("r", ttl=2).run(lead_in_thread) == 5
    assert times == sorted(set(times))
    assert client.stats().losses == 3
    wait_until(lambda: is_free(servers, "r"))


def test_a_loss_does_not_hide_another_error(client: quorlock.Client) -> None:
    def lead(lease: quorlock.Lease) -> None:
        client.force_release("r")
        assert lease.wait_lost(60)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        client.elect("r", ttl=0.3).run(lead)

    def hold_another(_: quorlock.Lease) -> None:
        lease = client.lock("other").acquire()
        lease.release()
        lease.check()

    # The lease of the leader was not lost.
    with pytest.raises(quorlock.LeaseLostError, match="other"):
        client.elect("r").run(hold_another)


def test_a_cancelled_candidate_gives_up(client: quorlock.Client, servers: Servers) -> None:
    async def wait(lease: quorlock.Lease) -> None:
        await asyncio.sleep(60)

    async def run() -> None:
        leading = asyncio.create_task(client.elect("r").run_async(wait))
        while client.stats().elections == 0:
            await asyncio.sleep(0.001)
        waiting = asyncio.create_task(client.elect("r", holder="b").run_async(wait))
        while client.stats().waiting == 0:
            await asyncio.sleep(0.001)
        for task in (waiting, leading):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())
    wait_until(lambda: is_free(servers, "r"))
    wait_until(lambda: listeners(servers, "r", "b") == [0, 0, 0])
    assert client.stats().releases == 1


def test_an_outage_is_logged_and_is_no_end(
    servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    freeze(servers)
    with (
        quorlock.Client(servers.urls, connect_timeout=0.05, node_timeout=0.05) as client,
        ThreadPoolExecutor() as threads,
    ):
        leading = threads.submit(client.elect("r").run, lambda lease: lease.fence)
        wait_until(lambda: client.stats().no_quorum >= 2)
        thaw(servers)
        assert leading.result(60) > 0
    wait_until(lambda: any("no election" in record.message for record in caplog.records))
    [record] = [record for record in caplog.records if "no election" in record.message]
    assert (record.name, record.levelno) == ("quorlock.election", logging.WARNING)


def test_an_observer_iterates_over_the_leaders(client: quorlock.Client, servers: Servers) -> None:
    observer = quorlock.Client(servers.urls)
    leaders = observer.watch("r")
    assert leaders.resource == "r"
    assert repr(leaders) == "<quorlock.Watch of 'r'>"
    seen: list[quorlock.Leader] = []
    for name in ("a", "b", ""):
        with client.lock("r", holder=name) as lease:
            for leader in leaders:
                seen.append(leader)
                break
            assert seen[-1] == quorlock.Leader(name, lease.fence)
    assert [leader.holder for leader in seen] == ["a", "b", ""]

    async def run() -> None:
        with client.lock("r", holder="d") as lease:
            async for leader in leaders:
                assert (leader.holder, leader.fence) == ("d", lease.fence)
                break
            # A wait that was cancelled loses nothing.
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(leaders), 0.02)
            async for leader in observer.watch("r"):
                assert leader.fence == lease.fence
                break
        waiting = asyncio.ensure_future(anext(leaders))
        await asyncio.sleep(0)
        await observer.aclose()
        with pytest.raises(quorlock.ClosedError):
            await waiting

    asyncio.run(run())


def test_documented_permissions_suffice(servers: Servers) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "connections.md").read_text()
    rule = re.search(r"ACL SETUSER locker (.*)", page)
    row = re.search(r"\| elections \| `(.*)` \|", page)
    assert rule
    assert row
    for server in servers:
        server.command("ACL", "SETUSER", "locker", *rule[1].split(), *row[1].split())
    urls = [f"redis://locker:secret@127.0.0.1:{server.port}" for server in servers]
    with (
        quorlock.Client(urls, key_prefix="app:", ttl=600) as leading,
        quorlock.Client(urls, key_prefix="app:", ttl=600) as other,
        ThreadPoolExecutor() as threads,
    ):

        def lead(lease: quorlock.Lease) -> int:
            assert next(iter(other.watch("r"))).fence == lease.fence
            following = threads.submit(other.elect("r", holder="b").run, lambda lease: lease.fence)
            wait_until(lambda: lease.hand_over("b") or not lease.valid)
            assert following.result(60) > lease.fence
            return lease.fence

        leading.elect("r").run(lead)
    for server in servers:
        assert server.command("ACL", "LOG") == []


def test_mistakes(client: quorlock.Client) -> None:
    with pytest.raises(quorlock.ConfigError, match="the resource must be a string, not 7"):
        client.elect(7)  # type: ignore[arg-type]
    with pytest.raises(quorlock.ConfigError, match="the resource must be a string, not 7"):
        client.watch(7)  # type: ignore[arg-type]

    async def lead(lease: quorlock.Lease) -> None:
        raise AssertionError("it never runs")

    with pytest.raises(TypeError, match="use run_async"):
        client.elect("r").run(lead)  # type: ignore[unused-coroutine]
    with pytest.raises(TypeError, match="use run_async"):
        client.elect("r").run(lambda lease: lead(lease))  # type: ignore[unused-coroutine]
    with client.lock("r") as lease:
        for successor in (None, 7, b"b", "\n"):
            with pytest.raises(quorlock.ConfigError, match="successor must be"):
                lease.hand_over(successor)  # type: ignore[arg-type]
        assert lease.valid


def test_a_leader_whose_body_would_run_without_the_lease_is_refused(
    client: quorlock.Client, servers: Servers
) -> None:
    async def body(lease: quorlock.Lease) -> None:
        pytest.fail("the body ran")

    async def generate(lease: quorlock.Lease) -> AsyncIterator[None]:
        pytest.fail("the body ran")
        yield

    async def returns_coroutine(lease: quorlock.Lease) -> Any:
        return body(lease)

    async def returns_generator(lease: quorlock.Lease) -> Any:
        return generate(lease)

    election = client.elect("r")
    for lead, what in [(returns_coroutine, "an awaitable"), (returns_generator, "a generator")]:
        with pytest.raises(TypeError, match=f"returned {what}, whose body would run after"):
            asyncio.run(election.run_async(lead))
    generators: list[Callable[[quorlock.Lease], Any]] = [
        lambda lease: generate(lease),
        lambda lease: (part for part in [lease]),
    ]
    for plain in generators:
        with pytest.raises(TypeError, match=r"a generator, .*; iterate it in the function"):
            asyncio.run(election.run_async(plain))
        with pytest.raises(TypeError, match=r"a generator, .*; iterate it in the function"):
            election.run(plain)
    with pytest.raises(TypeError, match=r"run_async takes an async function, .*: use run$"):
        asyncio.run(election.run_async(lambda lease: lease.fence))  # type: ignore[arg-type,return-value]
    assert client.stats().losses == 0
    wait_until(lambda: is_free(servers, "r"))


def test_a_function_that_cannot_lead_is_refused_before_the_candidacy(
    client: quorlock.Client,
) -> None:
    async def generate_async(lease: quorlock.Lease) -> AsyncIterator[None]:
        yield

    def generate(lease: quorlock.Lease) -> Iterator[None]:
        yield

    election = client.elect("r")
    wrong: list[tuple[Any, str]] = [
        (None, "takes a function to run as the leader, not None"),
        (generate, "takes a function that is not a generator"),
        (generate_async, "takes a function that is not a generator"),
        (functools.partial(generate_async), "takes a function that is not a generator"),
    ]
    # A candidate would wait without end.
    with client.lock("r"):
        for lead, message in wrong:
            with pytest.raises(TypeError, match=f"^run {message}"):
                election.run(lead)
            with pytest.raises(TypeError, match=f"^run_async {message}"):
                asyncio.run(election.run_async(lead))


def test_a_campaign_in_a_block_that_it_would_wait_for_is_refused(client: quorlock.Client) -> None:
    def lead(lease: quorlock.Lease) -> None:
        raise AssertionError(f"{lease} and a reader at the same time")

    async def lead_async(lease: quorlock.Lease) -> None:
        lead(lease)

    async def campaign() -> None:
        async with client.lock("r", mode="shared"):
            with pytest.raises(quorlock.ConfigError, match="this is in a block"):
                await client.elect("r").run_async(lead_async)

    with client.lock("r", mode="shared"):
        with pytest.raises(quorlock.ConfigError, match="this is in a block"):
            client.elect("r").run(lead)
    asyncio.run(campaign())
    assert client.elect("r").run(lambda lease: lease.valid)


def test_an_async_leader_may_be_a_function_that_returns_a_coroutine(
    client: quorlock.Client,
) -> None:
    async def lead(lease: quorlock.Lease, factor: int) -> int:
        assert lease.valid
        return lease.fence * factor

    assert asyncio.run(client.elect("r").run_async(lambda lease: lead(lease, 0))) == 0
    assert asyncio.run(client.elect("r").run_async(functools.partial(lead, factor=0))) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_forked_child_elects_and_observes(client: quorlock.Client, servers: Servers) -> None:
    leaders, election = client.watch("r"), client.elect("r", holder="a")
    fence = election.run(lambda lease: next(leaders).fence)
    child = os.fork()
    if child == 0:
        found = election.run(lambda lease: next(leaders).fence)
        os._exit(0 if found > fence else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert election.run(lambda lease: next(leaders).fence) > fence
