"""Locks under trio, and under anyio with each of its backends."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import anyio
import outcome
import pytest
import trio
from nodes import freeze, is_free, keys, steal, thaw
from servers import Servers
from waiting import TIMEOUT, wait_until

import quorlock
from quorlock import _async, _scope
from quorlock.testing import Nodes

Run = Callable[[Callable[[], Awaitable[None]]], None]

RUNS: dict[str, Any] = {
    "trio": trio.run,
    "anyio on trio": functools.partial(anyio.run, backend="trio"),
    "anyio on asyncio": functools.partial(anyio.run, backend="asyncio"),
}
ROUNDS = 300
LONGEST = 0.003
"""The longest delay before a cancellation, in seconds."""


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest) -> Run:
    """Runs an async function that uses anyio, which also works under plain trio."""
    run: Run = RUNS[request.param]
    return run


@pytest.fixture
def client(servers: Servers) -> Iterator[quorlock.Client]:
    with quorlock.Client(servers.urls, ttl=2, wait=None) as client:
        yield client


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(TIMEOUT):
        while not condition():
            await anyio.sleep(0.005)


async def work() -> None:
    """Waits until it is cancelled, and fails if it is not."""
    await anyio.sleep(TIMEOUT)
    pytest.fail("the body was not cancelled")


# The methods


def test_all_async_methods_work(run: Run, client: quorlock.Client, servers: Servers) -> None:
    async def main() -> None:
        lock = client.lock("r")
        async with lock as lease:
            assert lease.valid
            assert await lock.locked_async()
            assert await lock.try_acquire_async() is None
            with pytest.raises(quorlock.LockTimeoutError):
                await lock.acquire_async(wait=0)
            await lease.extend_async(30)
            assert lease.remaining > 10
            assert not await lease.wait_lost_async(0.01)
            await lease.downgrade_async()
            assert lease.mode == "shared"
            assert (await client.status_async("r")).state == "held"
        assert not await lock.locked_async()
        shared = await client.lock("r", mode="shared").acquire_async()
        exclusive = await shared.try_upgrade_async()
        assert exclusive is not None
        adopted = await client.adopt_async(await exclusive.detach_async())
        assert not await adopted.hand_over_async("nobody")
        async with adopted:
            pass
        lease = await lock.acquire_async()
        assert await lease.release_async()
        assert not await lease.wait_lost_async()
        async with client.semaphore("s", limit=2, permits=2) as permits:
            assert permits.slots == (0, 1)
            assert (await client.semaphore("s", limit=2).status_async()).free == 0
        assert await client.force_release_async("r")
        assert (await client.doctor_async()).findings is not None
        async with quorlock.Client(servers.urls) as other:
            pass
        assert other.closed

    run(main)
    wait_until(lambda: not keys(servers))
    assert client.stats().dropped == 0


def test_a_decorated_function_holds_the_lock(run: Run, client: quorlock.Client) -> None:
    @client.lock(lambda number: f"r{number}")
    async def function(number: int) -> int:
        assert await client.lock(f"r{number}").locked_async()
        return 2 * number

    async def main() -> None:
        assert await function(21) == 42

    run(main)


def test_tasks_exclude_each_other(run: Run, client: quorlock.Client) -> None:
    fences: list[int] = []
    inside: list[int] = []
    lock = client.lock("r")

    async def cycle() -> None:
        for _ in range(5):
            async with lock as lease:
                inside.append(lease.fence)
                assert len(inside) == 1
                await anyio.sleep(0.001)
                fences.append(inside.pop())

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(6):
                group.start_soon(cycle)

    run(main)
    assert fences == sorted(set(fences))
    assert len(fences) == 30


def test_each_task_is_an_owner(run: Run, client: quorlock.Client) -> None:
    owners: list[int] = []

    async def acquire() -> None:
        owners.append(_scope.owner())
        async with client.lock("r", mode="shared"):
            owners.append(_scope.owner())

    async def main() -> None:
        async with client.lock("r", mode="shared"):
            with pytest.raises(quorlock.ConfigError, match="use try_upgrade"):
                await client.lock("r").acquire_async()
            async with anyio.create_task_group() as group:
                group.start_soon(acquire)
            assert owners[0] == owners[1] != _scope.owner()

    run(main)


def test_in_memory_nodes_work(run: Run) -> None:
    # Reference cycles may keep clients of earlier tests, whose servers have clocks of their own.
    gc.collect()

    async def main() -> None:
        with Nodes(3) as nodes:
            client = nodes.client(ttl=10)
            with pytest.raises(quorlock.LeaseLostError):
                async with client.lock("r"):
                    nodes.steal("r")
                    await work()
            nodes.cut()
            with nodes.fast_forward(), pytest.raises(quorlock.QuorumError):
                await client.lock("s").acquire_async()

    run(main)


def test_a_blocking_call_warns(run: Run, client: quorlock.Client) -> None:
    async def main() -> None:
        with pytest.warns(quorlock.EventLoopBlockedWarning, match=r"`await acquire_async\(\)`"):
            lease = client.lock("r").acquire()
        assert await lease.release_async()

    run(main)


def test_a_blocking_call_in_a_thread_does_not_warn(run: Run, client: quorlock.Client) -> None:
    async def main() -> None:
        lease = await anyio.to_thread.run_sync(client.lock("r").acquire)
        assert await anyio.to_thread.run_sync(lease.release)

    run(main)


# Cancellation


def test_a_cancelled_waiter_returns_at_once_and_leaves_no_key(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        async with client.lock("r"):
            began = time.monotonic()
            with anyio.move_on_after(0.3) as scope:
                async with client.lock("r"):
                    pytest.fail("the body ran")
            assert scope.cancelled_caught
            assert 0.3 <= time.monotonic() - began < 20
            await until(lambda: client.stats().waiting == 0)
        await until(lambda: not keys(servers))
        async with client.lock("r", wait=0):
            pass

    run(main)
    assert client.stats().cancelled == 1


def test_cancelled_waiters_of_a_task_group_leave_no_key(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def wait() -> None:
        async with client.lock("r"):
            pytest.fail("the body ran")

    async def main() -> None:
        async with client.lock("r"):
            async with anyio.create_task_group() as group:
                for _ in range(20):
                    group.start_soon(wait)
                await until(lambda: client.stats().waiting == 20)
                group.cancel_scope.cancel()
        await until(lambda: not keys(servers))

    run(main)
    assert client.stats().cancelled == 20
    assert client.stats().dropped == 0


def test_acquires_cancelled_at_any_moment_leave_no_key(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    cancelled = 0

    async def main() -> None:
        nonlocal cancelled
        for round_ in range(ROUNDS):
            lease = None
            with anyio.move_on_after(random.random() * LONGEST):
                lease = await client.lock(f"r{round_}").acquire_async()
            if lease is None:
                cancelled += 1
            else:
                await lease.release_async()
        await until(lambda: not keys(servers))

    run(main)
    assert 0 < cancelled < ROUNDS
    assert client.stats().dropped == 0


def test_blocks_cancelled_at_any_moment_leave_no_key(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        for _ in range(ROUNDS):
            with anyio.move_on_after(random.random() * LONGEST):
                async with client.lock("r"):
                    await anyio.sleep(0)
        await until(lambda: not keys(servers))

    run(main)
    assert client.stats().losses == client.stats().dropped == 0


def test_a_lease_that_arrives_with_the_cancellation_is_released(
    client: quorlock.Client, servers: Servers
) -> None:
    holder = client.lock("r").acquire()

    async def main() -> None:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.lock("r").acquire_async)
                await until(lambda: client.stats().waiting == 1)
                # The acquire succeeds while the run is blocked.
                thread = threading.Thread(target=holder.release)
                thread.start()
                wait_until(lambda: client.stats().wins == 2)
                thread.join()
                scope.cancel()
        await until(lambda: is_free(servers, "r"))

    trio.run(main)
    assert client.stats().dropped == 0


def test_the_exit_of_a_cancelled_block_waits_for_the_release(
    client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        is_thawed = False

        async def thaw_later() -> None:
            nonlocal is_thawed
            await trio.sleep(0.2)
            thaw(servers)
            is_thawed = True

        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:
                async with client.lock("r", ttl=600):
                    freeze(servers)
                    scope.cancel()
                    nursery.start_soon(thaw_later)
                    await work()
            assert scope.cancelled_caught
            assert is_thawed

    trio.run(main)
    wait_until(lambda: is_free(servers, "r"))


def test_the_exit_of_a_cancelled_client_block_closes_the_client(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        with anyio.CancelScope() as scope:
            async with quorlock.Client(servers.urls) as other:
                lease = await other.lock("r").acquire_async()
                scope.cancel()
        assert other.closed
        assert not lease.valid
        await until(lambda: is_free(servers, "r"))

    run(main)


def test_a_cancelled_release_completes(run: Run, client: quorlock.Client, servers: Servers) -> None:
    async def main() -> None:
        lease = await client.lock("r").acquire_async()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await lease.release_async()
        assert not lease.valid
        await until(lambda: not keys(servers))

    run(main)


# Losses


def test_a_lost_lease_cancels_the_body(run: Run, client: quorlock.Client, servers: Servers) -> None:
    async def main() -> None:
        with pytest.raises(quorlock.LeaseLostError, match="majority") as caught:
            async with client.lock("r"):
                steal(servers, "r")
                await work()
        cancelled: type[BaseException] = anyio.get_cancelled_exc_class()
        assert isinstance(caught.value.__cause__, cancelled)
        with pytest.raises(quorlock.LeaseLostError, match="majority"):
            async with await client.lock("s").acquire_async():
                steal(servers, "s")
                await work()
        # No cancellation is left.
        await anyio.sleep(0.001)

    run(main)
    assert servers[0].command("GET", "r") == "thief"


def test_a_lost_lease_cancels_the_tasks_of_the_body(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        with pytest.raises(quorlock.LeaseLostError):
            async with client.lock("r"), anyio.create_task_group() as group:
                steal(servers, "r")
                group.start_soon(work)
                group.start_soon(work)

    run(main)


def test_a_loss_cancels_only_the_blocks_inside(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        async with client.lock("a") as outer:
            with pytest.raises(quorlock.LeaseLostError) as caught:
                async with client.lock("b"), client.lock("c"):
                    steal(servers, "b")
                    await work()
            assert caught.value.resource == "b"
            await anyio.sleep(0.01)
            assert outer.valid

    run(main)
    wait_until(lambda: is_free(servers, "c"))


def test_another_cancellation_has_priority_over_a_loss(
    client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        with trio.CancelScope() as scope:
            async with client.lock("r") as lease:
                lost = trio.Event()
                lease.on_lost(lambda _: lost.set())
                steal(servers, "r")
                with trio.CancelScope(shield=True):
                    await lost.wait()
                scope.cancel()
                await work()
        assert scope.cancelled_caught

    trio.run(main)


def test_an_error_of_the_body_has_priority_over_the_loss(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def fail() -> None:
        try:
            await work()
        finally:
            raise KeyError("body")

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as caught:
            async with client.lock("r"), anyio.create_task_group() as group:
                steal(servers, "r")
                group.start_soon(fail)
        assert caught.group_contains(KeyError, match="body")
        assert len(caught.value.exceptions) == 1

    run(main)


def test_a_loss_at_the_end_of_the_body_raises(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        with pytest.raises(quorlock.LeaseLostError):
            async with client.lock("r") as lease:
                steal(servers, "r")
                await lease.wait_lost_async()
        await anyio.sleep(0.001)

    run(main)


def test_a_wait_without_time_reports_a_lost_lease(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        lease = await client.lock("r").acquire_async()
        assert not await lease.wait_lost_async(0)
        steal(servers, "r")
        assert await lease.wait_lost_async()
        assert await lease.wait_lost_async(0)

    run(main)


def test_a_loss_after_the_block_cancels_nothing(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        async with client.lock("r", ttl=0.3):
            pass
        steal(servers, "r")
        await anyio.sleep(0.4)

    run(main)


def test_callbacks_run_in_the_thread_of_the_run(
    client: quorlock.Client, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda report: reported.append(report.exc_value))
    error = KeyError("callback")

    def fail() -> None:
        raise error

    async def main() -> None:
        losses: list[tuple[int, quorlock.LeaseLostError]] = []
        lost = trio.Event()
        lease = await client.lock("r").acquire_async()
        lease.on_lost(fail)
        lease.on_lost(lambda loss: losses.append((threading.get_ident(), loss)))
        lease.on_lost(lost.set)
        steal(servers, "r")
        await lost.wait()
        [(thread, loss)] = losses
        assert thread == threading.get_ident()
        assert loss.resource == "r"

    trio.run(main)
    assert reported == [error]


# Elections


def test_a_leader_is_cancelled_on_loss_and_campaigns_again(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    terms: list[int] = []

    async def lead(lease: quorlock.Lease) -> int:
        terms.append(lease.fence)
        if len(terms) == 1:
            steal(servers, "r")
            try:
                await work()
            finally:
                for server in servers:
                    server.command("DEL", "r")
        return lease.fence

    async def main() -> None:
        assert await client.elect("r").run_async(lead) == terms[1]

    run(main)
    assert len(terms) == 2
    wait_until(lambda: is_free(servers, "r"))


def test_a_cancelled_election_releases_the_lease(
    run: Run, client: quorlock.Client, servers: Servers
) -> None:
    async def main() -> None:
        leaders: list[str] = []
        async with anyio.create_task_group() as group:

            async def lead(lease: quorlock.Lease) -> None:
                await until(lambda: bool(leaders))
                group.cancel_scope.cancel()
                await work()

            group.start_soon(client.elect("r", holder="a").run_async, lead)
            watching = client.watch("r")
            leaders.append((await anext(watching)).holder)
            async for leader in watching:
                pytest.fail(f"{leader} is another leader")
        assert leaders == ["a"]
        await until(lambda: is_free(servers, "r"))

    run(main)
    assert client.stats().dropped == 0


# Runs


def test_a_client_can_be_used_in_one_run_after_another(client: quorlock.Client) -> None:
    async def main() -> None:
        async with client.lock("r"):
            pass

    for _ in range(3):
        for run in RUNS.values():
            run(main)
    with client.lock("r"):
        pass


def test_two_threads_run_trio(client: quorlock.Client) -> None:
    inside: list[int] = []
    fences: list[int] = []
    lock = client.lock("r")

    async def main() -> None:
        for _ in range(10):
            async with lock as lease:
                inside.append(lease.fence)
                assert len(inside) == 1
                await trio.sleep(0)
                fences.append(inside.pop())

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(trio.run, main) for _ in range(2)]:
            done.result()
    assert fences == sorted(set(fences))
    assert len(fences) == 20


def test_trio_and_asyncio_share_a_thread_in_guest_mode(client: quorlock.Client) -> None:
    fences: list[int] = []
    lock = client.lock("r")

    async def cycle(sleep: Callable[[float], Awaitable[Any]]) -> None:
        for _ in range(10):
            async with lock as lease:
                await sleep(0.001)
                fences.append(lease.fence)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[outcome.Outcome[None]] = loop.create_future()
        trio.lowlevel.start_guest_run(
            cycle,
            trio.sleep,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=ended.set_result,
        )
        await cycle(asyncio.sleep)
        (await ended).unwrap()

    asyncio.run(main())
    assert len(set(fences)) == 20


def test_the_innermost_library_waits(client: quorlock.Client) -> None:
    """Such as in Jupyter, which runs trio inside an asyncio task."""

    async def main(inner: Callable[[], None]) -> None:
        async with client.lock("r"):
            inner()
        async with client.lock("s"):
            pass

    async def hold(sleep: Callable[[float], Awaitable[Any]]) -> None:
        async with client.lock("s"):
            await sleep(0.001)

    asyncio.run(main(lambda: trio.run(hold, trio.sleep)))
    trio.run(main, lambda: asyncio.run(hold(asyncio.sleep)))


def test_the_end_of_a_run_releases_the_leases_of_its_last_tasks(
    client: quorlock.Client, servers: Servers
) -> None:
    async def hold(entered: trio.Event) -> None:
        async with client.lock("system"):
            entered.set()
            await work()

    async def generate() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            with trio.CancelScope(shield=True):
                async with client.lock("generator"):
                    ended.append(True)

    ended: list[bool] = []

    async def main() -> None:
        entered = trio.Event()
        trio.lowlevel.spawn_system_task(hold, entered)
        await entered.wait()
        await anext(aiter(generator))

    generator = generate()
    trio.run(main)
    assert ended == [True]
    assert is_free(servers, "system")
    assert client.stats().releases == 2


def test_a_crash_of_the_run_releases_its_leases(client: quorlock.Client, servers: Servers) -> None:
    async def hold() -> None:
        async with client.lock("r"):
            await work()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(hold)
            await until(lambda: client.stats().waiting == 4)
            trio.lowlevel.current_trio_token().run_sync_soon(lambda: 1 // 0)
            await work()

    with pytest.raises(trio.TrioInternalError):
        trio.run(main)
    wait_until(lambda: is_free(servers, "r"))
    assert client.stats().waiting == client.stats().dropped == 0


# Ctrl-C


def test_ctrl_c_at_the_entry_of_a_block_releases_the_lease(
    client: quorlock.Client, servers: Servers
) -> None:
    @contextlib.contextmanager
    def observe(_: object) -> Iterator[Callable[[object], None]]:
        # The lease is acquired, but not yet in a block.
        yield lambda _: signal.raise_signal(signal.SIGINT)

    async def main() -> None:
        async with client.lock("r"):
            await work()

    client._native.observe(observe)
    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert is_free(servers, "r")
    assert client.stats().dropped == 0


@pytest.mark.parametrize("acquire", [None, quorlock.Lock.acquire_async], ids=["lock", "lease"])
def test_ctrl_c_at_the_exit_of_a_block_releases_the_lease(
    client: quorlock.Client, servers: Servers, acquire: Callable[[quorlock.Lock], Any] | None
) -> None:
    def interrupt(frame: FrameType, event: str, _: object) -> None:
        if frame.f_code.co_name == "__aexit__" and event == "call":
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)

    async def main() -> None:
        lock = client.lock("r")
        async with lock if acquire is None else await acquire(lock):
            sys.settrace(interrupt)

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert is_free(servers, "r")
    assert client.stats().dropped == 0


def test_ctrl_c_ends_a_wait(client: quorlock.Client, servers: Servers) -> None:
    program = """
import sys, quorlock, trio
client = quorlock.Client(sys.argv[1:], wait=None)
async def main():
    print("waiting", flush=True)
    async with client.lock("r"):
        pass
try:
    trio.run(main)
except KeyboardInterrupt:
    client.close()
    print("interrupted", flush=True)
"""
    with client.lock("r"):
        child = subprocess.Popen(
            [sys.executable, "-c", program, *servers.urls], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout
        assert child.stdout.readline() == "waiting\n"
        wait_until(lambda: client.status("r").waiters > 0)
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=TIMEOUT)[0] == "interrupted\n"
        assert child.returncode == 0
    wait_until(lambda: is_free(servers, "r"))


# Without a library


def test_trio_is_not_imported_by_quorlock(client: quorlock.Client) -> None:
    program = """
import asyncio, sys, quorlock
async def main():
    async with quorlock.Client(["memory://a"]).lock("r"): pass
asyncio.run(main())
assert not {"anyio", "sniffio", "trio"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=TIMEOUT)


def test_no_library_runs_outside_of_a_run() -> None:
    assert _async.current() is None
    with pytest.raises(RuntimeError, match="asyncio or trio"):
        _async.library()
