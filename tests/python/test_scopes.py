"""`async with` cancels its body when the lease is lost, as asyncio.timeout does at its deadline."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop
from nodes import is_free, steal
from servers import Servers
from waiting import TIMEOUT, wait_until

import quorlock
from quorlock import _scope

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine in a new event loop, and asserts that no cancellation is left pending."""

    def run(main: Coroutine[Any, Any, None]) -> None:
        async def check() -> None:
            await main
            task = asyncio.current_task()
            assert task
            assert task.cancelling() == 0
            await asyncio.sleep(0.001)

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(check())

    return run


@pytest.fixture
def client(servers: Servers) -> Iterator[quorlock.Client]:
    with quorlock.Client(servers.urls, ttl=2) as client:
        yield client


async def work(log: list[str] | None = None) -> None:
    """Waits until it is cancelled, and fails if it is not."""
    try:
        await asyncio.sleep(TIMEOUT)
        pytest.fail("the body was not cancelled")
    except asyncio.CancelledError:
        if log is not None:
            log.append("cancelled")
        raise


def test_a_lost_lease_cancels_the_body(run: Run, client: quorlock.Client, servers: Servers) -> None:
    log: list[str] = []

    async def main() -> None:
        with pytest.raises(quorlock.LeaseLostError, match="majority") as caught:
            async with client.lock("r"):
                steal(servers, "r")
                await work(log)
        assert isinstance(caught.value.__cause__, asyncio.CancelledError)

    run(main())
    assert log == ["cancelled"]
    assert servers[0].command("GET", "r") == "thief"


def test_reaching_max_hold_cancels_the_body(run: Run, client: quorlock.Client) -> None:
    async def main() -> None:
        with pytest.raises(quorlock.LeaseLostError, match="3 s at most"):
            async with client.lock("r", max_hold=3):
                await work()

    run(main())


def test_closing_the_client_cancels_the_body(run: Run, servers: Servers) -> None:
    async def main() -> None:
        client = quorlock.Client(servers.urls)
        with pytest.raises(quorlock.LeaseLostError, match="client was closed"):
            async with client.lock("r"), asyncio.TaskGroup() as group:
                group.create_task(client.aclose())
                await work()

    run(main())


def test_nothing_is_cancelled_after_the_body(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        async with client.lock("r", ttl=0.6):
            pass
        steal(servers, "r")
        await asyncio.sleep(0.7)

    run(main())


def test_the_loss_of_the_inner_lease_cancels_only_the_inner_block(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        async with client.lock("outer") as outer:
            with pytest.raises(quorlock.LeaseLostError) as caught:
                async with client.lock("inner"):
                    steal(servers, "inner")
                    await work()
            assert caught.value.resource == "inner"
            await asyncio.sleep(0.01)
            assert outer.valid

    run(main())
    wait_until(lambda: is_free(servers, "outer"))


def test_the_loss_of_the_outer_lease_cancels_both_blocks(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        with pytest.raises(quorlock.LeaseLostError) as caught:
            async with client.lock("outer"), client.lock("inner"):
                steal(servers, "outer")
                await work()
        assert caught.value.resource == "outer"

    run(main())
    wait_until(lambda: is_free(servers, "inner"))


def test_the_loss_of_both_leases_raises_once(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        with pytest.raises(quorlock.LeaseLostError):
            async with client.lock("outer"), client.lock("inner"):
                steal(servers, "outer")
                steal(servers, "inner")
                await work()

    run(main())


def test_an_outer_timeout_raises_timeout_error(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.5), client.lock("r"):
                await work()
        assert not isinstance(caught.value, quorlock.QuorlockError)

    run(main())
    wait_until(lambda: is_free(servers, "r"))


def test_a_loss_within_a_timeout_raises_lease_lost_error(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        with pytest.raises(quorlock.LeaseLostError):
            async with asyncio.timeout(TIMEOUT), client.lock("r"), asyncio.timeout(TIMEOUT):
                steal(servers, "r")
                await work()

    run(main())


def test_an_inner_timeout_passes_through_the_block(run: Run, client: quorlock.Client) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with client.lock("r") as lease:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await work()
                assert lease.valid
                async with asyncio.timeout(0.01):
                    await work()

    run(main())


def test_a_cancellation_from_outside_passes_through_the_block(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        entered = asyncio.Event()

        async def hold() -> None:
            async with client.lock("r"):
                entered.set()
                await work()

        task = asyncio.create_task(hold())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    run(main())
    wait_until(lambda: is_free(servers, "r"))


def test_a_cancellation_from_outside_takes_precedence_over_the_loss(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        lost = asyncio.Event()

        async def hold() -> None:
            async with client.lock("r") as lease:
                lease.on_lost(lost.set)
                steal(servers, "r")
                try:
                    await work()
                finally:
                    await asyncio.sleep(0.01)  # cancelled for a second time by `task.cancel()`

        task = asyncio.create_task(hold())
        await lost.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())


def test_a_task_group_in_the_body_is_cancelled(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    log: list[str] = []

    async def main() -> None:
        with pytest.raises(quorlock.LeaseLostError):
            async with client.lock("r"), asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(work(log))
                await asyncio.sleep(0.01)
                steal(servers, "r")

    run(main())
    assert log == ["cancelled"] * 3


def test_a_loss_in_a_task_of_a_group_cancels_the_group(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    log: list[str] = []

    async def hold() -> None:
        async with client.lock("r"):
            steal(servers, "r")
            await work()

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                group.create_task(hold())
                await work(log)
        assert caught.group_contains(quorlock.LeaseLostError, depth=1)
        assert len(caught.value.exceptions) == 1

    run(main())
    assert log == ["cancelled"]


def test_an_error_of_the_cancelled_body_is_not_replaced(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        with pytest.raises(KeyError, match="body") as caught:
            async with client.lock("r"):
                steal(servers, "r")
                try:
                    await work()
                except asyncio.CancelledError:
                    raise KeyError("body") from None
        [note] = caught.value.__notes__
        assert note.startswith('the lease of "r" was lost: ')

    run(main())


def test_a_body_that_swallows_the_cancellation_raises_lease_lost_error(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        with pytest.raises(quorlock.LeaseLostError):
            async with client.lock("r"):
                steal(servers, "r")
                with pytest.raises(asyncio.CancelledError):
                    await work()

    run(main())


@pytest.mark.parametrize("own", [None, KeyError("body")], ids=["none", "own error"])
def test_a_loss_at_the_end_of_the_body_raises_unless_the_body_raised(
    run: Run, client: quorlock.Client, servers: Servers, own: KeyError | None
) -> None:
    async def main() -> None:
        with pytest.raises(type(own) if own else quorlock.LeaseLostError):
            async with client.lock("r") as lease:
                steal(servers, "r")
                assert lease.wait_lost()  # the event loop has not yet run the loss callback
                # Cancel the `with` body directly, as the loss callback would if the event loop ran
                # it between two awaits of this task.
                scope = _scope.entered.get()[-1]()
                assert scope
                scope._cancel(RuntimeError("lost"))
                if own:
                    raise own

    run(main())


def test_a_loss_that_reaches_the_loop_after_the_body_raises_once(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        with pytest.raises(quorlock.LeaseLostError):
            async with client.lock("r") as lease:
                steal(servers, "r")
                assert lease.wait_lost()

    run(main())


def test_a_decorated_function_is_cancelled_on_loss(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    @client.lock("r")
    async def function() -> None:
        steal(servers, "r")
        await work()

    async def main() -> None:
        with pytest.raises(quorlock.LeaseLostError):
            await function()

    run(main())


def test_a_block_can_be_left_in_another_task(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def generate() -> AsyncIterator[quorlock.Lease]:
        async with client.lock("r") as lease:
            yield lease

    async def main() -> None:
        generator = generate()

        async def enter() -> quorlock.Lease:
            return await anext(generator)

        lease = await asyncio.create_task(enter())
        steal(servers, "r")
        assert await lease.wait_lost_async()
        with pytest.raises(quorlock.LeaseLostError):
            await anext(generator)

    run(main())


def test_a_task_discarded_with_its_loop_releases_its_lease(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda report: reported.append(report.exc_value))
    with quorlock.Client(servers.urls, ttl=600) as client:
        lock = client.lock("r")

        async def hold() -> None:
            async with lock:
                entered.set()
                await asyncio.sleep(TIMEOUT)

        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda loop, context: None)
        entered = asyncio.Event()
        task = loop.create_task(hold())
        loop.run_until_complete(entered.wait())
        loop.close()
        del task, loop
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
        wait_until(lambda: is_free(servers, "r"))
    assert reported == []


def test_a_coroutine_that_is_closed_in_its_block_releases_its_lease(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def hold() -> None:
        async with client.lock("r"):
            await asyncio.sleep(TIMEOUT)

    async def generate() -> AsyncGenerator[quorlock.Lease, None]:
        async with client.lock("s") as lease:
            yield lease

    async def main() -> None:
        coroutine = hold()
        waiting: Any = coroutine.send(None)
        while client.stats().wins == 0:
            await asyncio.sleep(0.001)
        await asyncio.wait([waiting], timeout=TIMEOUT)
        coroutine.send(None)
        coroutine.close()
        generator = generate()
        lease = await anext(generator)
        await generator.aclose()
        assert not lease.valid

    run(main())
    wait_until(lambda: is_free(servers, "r") and is_free(servers, "s"))
    assert client.stats().releases == 2
