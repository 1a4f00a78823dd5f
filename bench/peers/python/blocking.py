"""The blocking libraries.

Each function connects, and returns a function that takes a key and returns a cycle on that key.

All threads share the clients, which every library here allows. Each key has its own lock object, if
the library has lock objects, and is used by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from locks import TTL, require

Cycle = Callable[[], None]
Open = Callable[[list[str]], Callable[[str], Cycle]]


def pottery(urls: list[str]) -> Callable[[str], Cycle]:
    import pottery
    from redis import Redis

    masters = {Redis.from_url(url) for url in urls}

    def lock(key: str) -> Cycle:
        lock = pottery.Redlock(key=key, masters=masters, auto_release_time=TTL)

        def cycle() -> None:
            require(lock.acquire())
            lock.release()  # raises if a majority did not hold it

        return cycle

    return lock


def redlock_ng(urls: list[str]) -> Callable[[str], Cycle]:
    import redlock

    manager = redlock.Redlock(redlock.RedlockConfig(masters=urls))

    def lock(key: str) -> Cycle:
        def cycle() -> None:
            with manager.lock(key, ttl=TTL * 1000) as lock:
                require(lock.valid)

        return cycle

    return lock


def redlock_py(urls: list[str]) -> Callable[[str], Cycle]:
    import redlock

    manager = redlock.Redlock(urls)

    def lock(key: str) -> Cycle:
        def cycle() -> None:
            lock = manager.lock(key, TTL * 1000)
            require(lock)
            manager.unlock(lock)

        return cycle

    return lock


def redis_py(urls: list[str]) -> Callable[[str], Cycle]:
    from redis import Redis

    [url] = urls
    server = Redis.from_url(url)

    def lock(key: str) -> Cycle:
        lock = server.lock(key, timeout=TTL)

        def cycle() -> None:
            require(lock.acquire())
            lock.release()  # raises if it was not held

        return cycle

    return lock


def python_redis_lock(urls: list[str]) -> Callable[[str], Cycle]:
    import redis_lock
    from redis import Redis

    [url] = urls
    server = Redis.from_url(url)

    def lock(key: str) -> Cycle:
        lock = redis_lock.Lock(server, key, expire=TTL)

        def cycle() -> None:
            require(lock.acquire())
            lock.release()  # raises if it was not held

        return cycle

    return lock


LIBRARIES: dict[str, Open] = {
    "pottery": pottery,
    "redlock-ng": redlock_ng,
    "redlock-py": redlock_py,
    "redis-py": redis_py,
    "python-redis-lock": python_redis_lock,
}
