"""Tests the package with in-memory nodes, on systems without Redis, such as Windows in CI."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

import quorlock

NODES = ["memory://a", "memory://b", "memory://c"]


def test_threads_exclude_each_other() -> None:
    fences: list[int] = []
    with quorlock.Client(NODES, wait=60) as client:

        def work() -> None:
            for _ in range(10):
                with client.lock("threads") as lease:
                    fences.append(lease.fence)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(fences) == 40
    assert fences == sorted(set(fences))


def test_tasks_exclude_each_other_and_are_notified_of_losses() -> None:
    fences: list[int] = []

    async def main() -> None:
        async with quorlock.Client(NODES, wait=60) as client:

            async def work() -> None:
                for _ in range(10):
                    async with client.lock("tasks") as lease:
                        fences.append(lease.fence)
                        await asyncio.sleep(0)

            await asyncio.gather(*(work() for _ in range(4)))
            with pytest.raises(TimeoutError):
                async with client.lock("tasks"), asyncio.timeout(0.05):
                    await client.lock("tasks", wait=None).acquire_async()
            lease = await client.lock("lost", auto_extend=False, ttl=0.05).acquire_async()
            lost = asyncio.Event()
            lease.on_lost(lost.set)
            await lost.wait()

    asyncio.run(main())
    assert len(fences) == 40
    assert fences == sorted(set(fences))


def test_a_closed_event_loop_cancels_its_waiters() -> None:
    with quorlock.Client(NODES, wait=None) as client, client.lock("closed"):
        loop = asyncio.new_event_loop()
        task = loop.create_task(client.lock("closed").acquire_async())
        loop.run_until_complete(asyncio.sleep(0.05))
        assert client.stats().waiting == 1
        loop.close()
        deadline = time.monotonic() + 60
        while client.stats().cancelled == 0:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        assert not task.done()
