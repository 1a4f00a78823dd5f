"""Runs another lock library from PyPI, in its own virtual environment: `peer.py NAME URL...`.

The commands are described in ../peers.py.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aioredlock
import pottery
import redis_lock
import redlock
from redis import Redis
from redis.exceptions import LockError


@dataclass
class Held:
    """A lock that is held."""

    release: Callable[[], object]
    extend: Callable[[int], bool] | None = None
    """Extends the lock to the given milliseconds from now. None if the library cannot extend."""


Locker = Callable[[str, int], Held | None]
"""Tries once to acquire a resource, with a ttl in milliseconds."""


def tolerant(act: Callable[[], object], *lost: type[Exception]) -> Callable[[], bool]:
    """Returns a function that calls `act`. Its result is False if that raises `lost`, else True."""

    def attempt() -> bool:
        with suppress(*lost):
            act()
            return True
        return False

    return attempt


def redlock_py(urls: list[str]) -> Locker:
    manager = redlock.Redlock(urls, retry_count=1, retry_delay=0.001)

    def take(resource: str, ttl: int) -> Held | None:
        lock = manager.lock(resource, ttl)
        return Held(lambda: manager.unlock(lock)) if lock else None

    return take


def pottery_redlock(urls: list[str]) -> Locker:
    masters = {Redis.from_url(url) for url in urls}

    def take(resource: str, ttl: int) -> Held | None:
        lock = pottery.Redlock(key=resource, masters=masters, auto_release_time=ttl / 1000)

        def extend(ttl: int) -> bool:
            lock.auto_release_time = ttl / 1000
            return tolerant(lock.extend, pottery.ExtendUnlockedLock)()

        release = tolerant(lock.release, pottery.ReleaseUnlockedLock)
        return Held(release, extend) if lock.acquire(blocking=False) else None

    return take


def redis_py(urls: list[str]) -> Locker:
    [url] = urls
    server = Redis.from_url(url)

    def take(resource: str, ttl: int) -> Held | None:
        lock = server.lock(resource, timeout=ttl / 1000)

        def extend(ttl: int) -> bool:
            return tolerant(lambda: lock.extend(ttl / 1000, replace_ttl=True), LockError)()

        release = tolerant(lock.release, LockError)
        return Held(release, extend) if lock.acquire(blocking=False) else None

    return take


def python_redis_lock(urls: list[str]) -> Locker:
    [url] = urls
    server = Redis.from_url(url)

    def take(resource: str, ttl: int) -> Held | None:
        lock = redis_lock.Lock(server, resource, expire=ttl // 1000)

        def extend(ttl: int) -> bool:
            return tolerant(lambda: lock.extend(ttl // 1000), redis_lock.NotAcquired)()

        release = tolerant(lock.release, redis_lock.NotAcquired)
        return Held(release, extend) if lock.acquire(blocking=False) else None

    return take


def aioredlock_manager(urls: list[str]) -> Locker:
    loop = asyncio.new_event_loop()
    # The loop must keep running: the library undoes grants in a task that it does not await.
    threading.Thread(target=loop.run_forever, daemon=True).start()

    def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    manager = aioredlock.Aioredlock(urls, retry_count=1)

    def take(resource: str, ttl: int) -> Held | None:
        try:
            lock = run(manager.lock(resource, lock_timeout=ttl / 1000))
        except aioredlock.LockError:
            return None

        def extend(ttl: int) -> bool:
            return tolerant(lambda: run(manager.extend(lock, ttl / 1000)), aioredlock.LockError)()

        return Held(tolerant(lambda: run(manager.unlock(lock)), aioredlock.LockError), extend)

    return take


LOCKERS = {
    "redlock-py": redlock_py,
    "pottery": pottery_redlock,
    "redis-py": redis_py,
    "python-redis-lock": python_redis_lock,
    "aioredlock": aioredlock_manager,
}


def main() -> None:
    _, name, *urls = sys.argv
    take = LOCKERS[name](urls)
    held: dict[str, Held] = {}

    def answer(command: dict[str, Any]) -> dict[str, object]:
        match command:
            case {"acquire": str(resource), "ttl": int(ttl)}:
                taken = take(resource, ttl)
                if taken is not None:
                    held[resource] = taken
                return {"held": taken is not None}
            case {"extend": str(resource), "ttl": int(ttl)} if extend := held[resource].extend:
                return {"held": extend(ttl)}
            case {"release": str(resource)}:
                held.pop(resource).release()
                return {}
        raise ValueError(f"unknown command: {command}")

    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
