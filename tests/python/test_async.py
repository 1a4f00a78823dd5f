"""The lock in asyncio and uvloop event loops, on real servers."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import uvloop
from nodes import keys, scripts
from servers import Servers
from waiting import wait_until, wait_until_async

import quorlock
from quorlock import _asyncio
from quorlock._quorlock import Inbox

OPEN = Path("/proc/self/fd")
"""The directory in which Linux lists the open files of this process."""

LOOPS = [
    pytest.param(asyncio.new_event_loop, id="asyncio"),
    pytest.param(uvloop.new_event_loop, id="uvloop"),
]


@pytest.fixture
def servers(start_servers: Callable[..., Servers]) -> Servers:
    return start_servers(5)


def test_async_with_holds_the_lock_and_releases_it(servers: Servers) -> None:
    async def main() -> None:
        async with quorlock.Client(servers.urls) as client:
            async with client.lock("r") as lease:
                assert lease.valid
                assert await client.lock("r").locked_async()
                await lease.extend_async(30)
                assert lease.remaining > 10
            assert not lease.valid
            await wait_until_async(lambda: not keys(servers))
            lease = await client.lock("r").acquire_async()
            assert await lease.release_async()
            assert not await lease.release_async()

    asyncio.run(main())


def test_errors_reach_the_awaiting_task(servers: Servers) -> None:
    async def main() -> None:
        async with quorlock.Client(servers.urls) as client, client.lock("r"):
            with pytest.raises(quorlock.LockTimeoutError):
                await client.lock("r", wait=0).acquire_async()
        with pytest.raises(quorlock.ClosedError):
            await client.lock("r").acquire_async()

    asyncio.run(main())


@pytest.mark.parametrize("new_loop", LOOPS)
def test_tasks_that_continue_in_one_iteration_send_their_requests_together(
    start_servers: Callable[..., Servers], new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    (server,) = start_servers(1)

    async def hold(client: quorlock.Client, number: int) -> None:
        async with client.lock(f"r{number}"):
            pass

    async def commands_of_releases() -> int:
        async with quorlock.Client([server.url]) as client:
            holding = [asyncio.create_task(hold(client, number)) for number in range(8)]
            await asyncio.sleep(0)  # all acquires are sent
            wait_until(lambda: client.stats().wins == 8)  # their results arrive
            before = scripts(server)
            await asyncio.gather(*holding)
            return scripts(server) - before

    def is_one_command() -> bool:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(commands_of_releases()) == 1

    # On a loaded machine, the last result may arrive late, or the iteration may take too long.
    wait_until(is_one_command)


def test_a_client_can_be_used_in_one_event_loop_after_another(servers: Servers) -> None:
    client = quorlock.Client(servers.urls)

    async def main() -> None:
        async with client.lock("r"):
            pass

    for _ in range(3):
        asyncio.run(main())
    with client.lock("r"):
        pass
    client.close()


@pytest.mark.skipif(not OPEN.is_dir(), reason="the system does not list open files")
@pytest.mark.parametrize("new_loop", LOOPS)
def test_closed_event_loops_leave_no_open_sockets(
    servers: Servers, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    with quorlock.Client(servers.urls) as client:

        async def main() -> None:
            async with client.lock("r"):
                pass

        def sockets() -> int:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                runner.run(main())
            del runner
            gc.collect()
            return len(list(OPEN.iterdir()))

        sockets()
        before = sockets()
        for _ in range(20):
            after = sockets()
        assert after <= before


class WatchesNoSockets(asyncio.SelectorEventLoop):
    """An event loop that cannot watch sockets, like the default one on Windows."""

    def add_reader(self, *_: object) -> None:
        raise NotImplementedError


def inbox_on_windows(wake_up: Callable[[], object] | None) -> Inbox:
    if wake_up is None:
        raise NotImplementedError
    return Inbox(wake_up)


@pytest.fixture(params=[False, True], ids=["no readers", "Windows"])
def runner_without_sockets(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[asyncio.Runner]:
    if request.param:
        monkeypatch.setattr(_asyncio, "Inbox", inbox_on_windows)
    with asyncio.Runner(loop_factory=WatchesNoSockets) as runner:
        yield runner


def test_an_event_loop_that_cannot_watch_sockets_gets_results(
    servers: Servers, runner_without_sockets: asyncio.Runner
) -> None:
    async def main() -> None:
        async with quorlock.Client(servers.urls, wait=60) as client:

            async def cycle(key: int) -> None:
                for _ in range(5):
                    async with client.lock(f"r{key}"):
                        await asyncio.sleep(0)

            await asyncio.gather(*(cycle(key % 3) for key in range(30)))
            lost = asyncio.Event()
            lease = await client.lock("lost", auto_extend=False, ttl=0.05).acquire_async()
            lease.on_lost(lost.set)
            await lost.wait()
            task = asyncio.create_task(client.lock("r", wait=None).acquire_async())
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await wait_until_async(lambda: not keys(servers))

    runner_without_sockets.run(main())


def test_two_event_loops_in_two_threads_share_a_client(servers: Servers) -> None:
    inside: list[int] = []
    fences: list[int] = []

    async def work(lock: quorlock.Lock) -> None:
        for _ in range(10):
            async with lock as lease:
                inside.append(1)
                assert len(inside) == 1
                await asyncio.sleep(0)
                fences.append(lease.fence)
                inside.pop()

    with quorlock.Client(servers.urls, wait=60, retry_delay=(0.001, 0.01)) as client:
        lock = client.lock("r")
        with ThreadPoolExecutor(2) as threads:
            runs = [threads.submit(lambda: asyncio.run(work(lock))) for _ in range(2)]
        for run in runs:
            run.result()
    assert fences == sorted(set(fences))
    assert len(fences) == 20
