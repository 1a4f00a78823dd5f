"""The blocking libraries.

Each function connects. Those in `LOCKS` return a function that takes a key and returns a lock
object, which retries after a few milliseconds if it is `tuned`. Those in `CYCLES` return a function
that takes a key and returns a cycle on it.

All threads share the clients, which every library here allows. A key is used by one thread at a
time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from locks import TTL, require

Cycle = Callable[[], None]


class Lock(Protocol):
    def acquire(self) -> object: ...

    def release(self) -> object:
        """Raises if a majority of the nodes did not hold the lock."""


def pottery(urls: list[str], tuned: bool = False) -> Callable[[str], Lock]:
    import pottery
    from redis import Redis

    class Tuned(pottery.Redlock):  # type: ignore[misc]  # the library has no types
        # The maximum of the random retry delay, for which the library has no option.
        _RETRY_DELAY = 0.01

    masters = {Redis.from_url(url) for url in urls}
    kind: Any = Tuned if tuned else pottery.Redlock
    return lambda key: kind(key=key, masters=masters, auto_release_time=TTL)


def redis_py(urls: list[str], tuned: bool = False) -> Callable[[str], Lock]:
    from redis import Redis

    [url] = urls
    server = Redis.from_url(url)
    return lambda key: server.lock(key, timeout=TTL, sleep=0.005 if tuned else 0.1)


def python_redis_lock(urls: list[str], tuned: bool = False) -> Callable[[str], Lock]:
    import redis_lock
    from redis import Redis

    assert not tuned  # it waits with BLPOP and has no retry delay
    [url] = urls
    server = Redis.from_url(url)
    return lambda key: redis_lock.Lock(server, key, expire=TTL)


LOCKS = {"pottery": pottery, "redis-py": redis_py, "python-redis-lock": python_redis_lock}


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


CYCLES = {"redlock-ng": redlock_ng, "redlock-py": redlock_py}


def cycles(new: Callable[[str], Lock]) -> Callable[[str], Cycle]:
    """Returns a function that takes a key and returns a cycle on a lock object of its own."""

    def lock(key: str) -> Cycle:
        lock = new(key)

        def cycle() -> None:
            require(lock.acquire())
            lock.release()

        return cycle

    return lock
