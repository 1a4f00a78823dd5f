"""The peers from PyPI, run in a virtual environment of their own: `peer.py NAME URL...`.

The commands are described in ../peers.py.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pottery
import redlock
from redis import Redis
from redis.exceptions import LockError

Held = Callable[[], object]
"""Releases what is held."""

Locker = Callable[[str, int], Held | None]
"""Tries once to take a resource, for so many milliseconds."""


def redlock_py(urls: list[str]) -> Locker:
    manager = redlock.Redlock(urls, retry_count=1, retry_delay=0.001)

    def take(resource: str, ttl: int) -> Held | None:
        lock = manager.lock(resource, ttl)
        return (lambda: manager.unlock(lock)) if lock else None

    return take


def pottery_redlock(urls: list[str]) -> Locker:
    masters = {Redis.from_url(url) for url in urls}

    def take(resource: str, ttl: int) -> Held | None:
        lock = pottery.Redlock(key=resource, masters=masters, auto_release_time=ttl / 1000)

        def release() -> None:
            with suppress(pottery.ReleaseUnlockedLock):
                lock.release()

        return release if lock.acquire(blocking=False) else None

    return take


def redis_py(urls: list[str]) -> Locker:
    [url] = urls
    server = Redis.from_url(url)

    def take(resource: str, ttl: int) -> Held | None:
        lock = server.lock(resource, timeout=ttl / 1000)

        def release() -> None:
            with suppress(LockError):
                lock.release()

        return release if lock.acquire(blocking=False) else None

    return take


LOCKERS = {"redlock-py": redlock_py, "pottery": pottery_redlock, "redis-py": redis_py}


def main() -> None:
    _, name, *urls = sys.argv
    take = LOCKERS[name](urls)
    held: dict[str, Held] = {}

    def answer(command: dict[str, Any]) -> dict[str, object]:
        match command:
            case {"acquire": str(resource), "ttl": int(ttl)}:
                release = take(resource, ttl)
                if release is not None:
                    held[resource] = release
                return {"held": release is not None}
            case {"release": str(resource)}:
                held.pop(resource)()
                return {}
        raise ValueError(f"unknown command: {command}")

    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
