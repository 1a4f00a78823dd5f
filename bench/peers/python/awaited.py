"""The asyncio libraries.

Each function connects, and returns a function that takes a key and returns a cycle on that key.

All tasks share the clients. Each key has its own lock object, if the library has lock objects.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from locks import TTL, require

Cycle = Callable[[], Awaitable[None]]
Open = Callable[[list[str]], Callable[[str], Cycle]]


def _cycle(lock: Any) -> Cycle:
    async def cycle() -> None:
        require(await lock.acquire())
        await lock.release()  # raises if a majority did not hold it

    return cycle


def pottery(urls: list[str]) -> Callable[[str], Cycle]:
    import pottery
    from redis.asyncio import Redis

    masters = {Redis.from_url(url) for url in urls}

    return lambda key: _cycle(pottery.AIORedlock(key=key, masters=masters, auto_release_time=TTL))


def redlock_ng(urls: list[str]) -> Callable[[str], Cycle]:
    import redlock

    manager = redlock.AsyncRedlock(redlock.RedlockConfig(masters=urls))

    def lock(key: str) -> Cycle:
        async def cycle() -> None:
            async with manager.lock(key, ttl=TTL * 1000) as lock:
                require(lock.valid)

        return cycle

    return lock


def aioredlock(urls: list[str]) -> Callable[[str], Cycle]:
    from aioredlock import Aioredlock

    manager = Aioredlock(urls)

    def lock(key: str) -> Cycle:
        async def cycle() -> None:
            # With an explicit timeout, a lock is not renewed.
            lock = await manager.lock(key, lock_timeout=TTL)
            require(lock.valid)
            await manager.unlock(lock)  # raises if a majority did not hold it

        return cycle

    return lock


def redis_py(urls: list[str]) -> Callable[[str], Cycle]:
    from redis.asyncio import Redis

    [url] = urls
    server = Redis.from_url(url)

    return lambda key: _cycle(server.lock(key, timeout=TTL))


LIBRARIES: dict[str, Open] = {
    "pottery-asyncio": pottery,
    "redlock-ng-asyncio": redlock_ng,
    "aioredlock": aioredlock,
    "redis-py-asyncio": redis_py,
}
