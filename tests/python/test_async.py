"""The lock in event loops, on real servers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest
from servers import Servers
from waiting import wait_until_async

import quorlock


@pytest.fixture
def servers(start_servers: Callable[..., Servers]) -> Servers:
    return start_servers(5)


def keys(servers: Servers) -> list[object]:
    """The keys on all nodes that are no fences."""
    found: list[object] = []
    for server in servers:
        reply = server.command("KEYS", "*")
        assert isinstance(reply, list)
        found += [key for key in reply if not str(key).endswith(":fence")]
    return found


def test_an_async_with_block_holds_the_lock_and_frees_it(servers: Servers) -> None:
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


def test_tasks_that_share_a_lock_object_exclude_each_other(servers: Servers) -> None:
    fences: list[int] = []
    inside = 0

    async def work(lock: quorlock.Lock) -> None:
        nonlocal inside
        for _ in range(5):
            async with lock as lease:
                inside += 1
                assert inside == 1
                fences.append(lease.fence)
                await asyncio.sleep(0.001)
                inside -= 1
                lease.check()

    async def main() -> None:
        async with quorlock.Client(servers.urls, wait=120) as client:
            lock = client.lock("r")
            async with asyncio.TaskGroup() as group:
                for _ in range(6):
                    group.create_task(work(lock))

    asyncio.run(main())
    assert len(fences) == 30
    assert fences == sorted(set(fences))


def test_a_decorated_coroutine_function_holds_the_lock(servers: Servers) -> None:
    async def main() -> None:
        async with quorlock.Client(servers.urls) as client:

            @client.lock("report")
            async def report(factor: int) -> int:
                assert await client.lock("report").locked_async()
                return 2 * factor

            assert await report(21) == 42

    asyncio.run(main())


def test_leaving_an_async_with_block_whose_lease_was_taken_raises(servers: Servers) -> None:
    async def main() -> None:
        async with quorlock.Client(servers.urls) as client:
            with pytest.raises(quorlock.LeaseLostError):
                async with client.lock("r"):
                    for server in servers:
                        server.command("SET", "r", "thief")
            with pytest.raises(KeyError):
                async with client.lock("s"):
                    for server in servers:
                        server.command("SET", "s", "thief")
                    raise KeyError

    asyncio.run(main())
    assert [server.command("GET", "r") for server in servers] == ["thief"] * 5


def test_cancelled_acquires_leave_no_key(servers: Servers) -> None:
    async def main() -> None:
        async with quorlock.Client(servers.urls, ttl=600) as client:
            outcomes = []
            for round_ in range(200):
                task = asyncio.create_task(client.lock(f"r{round_}").acquire_async())
                await asyncio.sleep(random.random() * 0.001)
                task.cancel()
                outcome = (await asyncio.gather(task, return_exceptions=True))[0]
                outcomes.append(isinstance(outcome, asyncio.CancelledError))
                del outcome, task
            assert any(outcomes)
            await wait_until_async(lambda: not keys(servers))

    asyncio.run(main())


def test_a_cancelled_waiter_leaves_no_key(servers: Servers) -> None:
    async def main() -> None:
        async with quorlock.Client(servers.urls, ttl=600) as client:
            async with client.lock("r"):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2), client.lock("r", wait=None):
                        pytest.fail("the body ran")
            await wait_until_async(lambda: not keys(servers))

    asyncio.run(main())


def test_a_client_serves_one_event_loop_after_another(servers: Servers) -> None:
    client = quorlock.Client(servers.urls)

    async def main() -> None:
        async with client.lock("r"):
            pass

    for _ in range(3):
        asyncio.run(main())
    with client.lock("r"):
        pass
    client.close()


def test_a_loop_closed_under_an_acquire_leaves_no_key(servers: Servers) -> None:
    with quorlock.Client(servers.urls, ttl=600) as client, client.lock("r") as lease:
        loop = asyncio.new_event_loop()
        task = loop.create_task(client.lock("r", wait=None).acquire_async())
        loop.run_until_complete(asyncio.sleep(0.01))
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.close()
        lease.release()
        asyncio.run(wait_until_async(lambda: not keys(servers)))
