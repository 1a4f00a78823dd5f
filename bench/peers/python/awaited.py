"""The libraries for asyncio: each opens its clients, and makes of a key what runs a cycle on it.

The clients are shared by all tasks; each key has a lock object of its own, where there are any.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from locks import TTL, require

Cycle = Callable[[], Awaitable[None]]
Open = Callable[[list[str]], Callable[[str], Cycle]]


def pottery(urls: list[str]) -> Callable[[str], Cycle]:
    import pottery
    from redis.asyncio import Redis

    masters = {Redis.from_url(url) for url in urls}

    def lock(key: str) -> Cycle:
        lock = pottery.AIORedlock(key=key, masters=masters, auto_release_time=TTL)

        async def cycle() -> None:
            require(await lock.acquire())
            await lock.release()  # raises, if it was not held by a majority

        return cycle

    return lock


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
            # With a timeout of its own, a lock is not extended.
            lock = await manager.lock(key, lock_timeout=TTL)
            require(lock.valid)
            await manager.unlock(lock)  # raises, if it was not held by a majority

        return cycle

    return lock


def redis_py(urls: list[str]) -> Callable[[str], Cycle]:
    from redis.asyncio import Redis

    [url] = urls
    server = Redis.from_url(url)

    def lock(key: str) -> Cycle:
        lock = server.lock(key, timeout=TTL)

        async def cycle() -> None:
            require(await lock.acquire())
            await lock.release()  # raises, if it was not held

        return cycle

    return lock


LIBRARIES: dict[str, Open] = {
    "pottery-asyncio": pottery,
    "redlock-ng-asyncio": redlock_ng,
    "aioredlock": aioredlock,
    "redis-py-asyncio": redis_py,
}
