"""The Python libraries. Each function connects, and returns a function that acquires a lock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, cast

Release = Callable[[], object]

Take = Callable[[str], Release]
"""Waits until it holds the lock on a resource, and returns a function that releases it."""

TTL = 10
"""The ttl of all libraries in seconds, which is the default of most."""


def quorlock(stack: ExitStack, urls: list[str], tuned: bool) -> Take:
    import quorlock

    assert not tuned
    client = stack.enter_context(quorlock.Client(urls, ttl=TTL, wait=None))

    def take(resource: str) -> Release:
        lease = client.lock(resource).acquire()

        def release() -> None:
            if not lease.release():
                raise RuntimeError("the release was not confirmed")

        return release

    return take


def _redis(stack: ExitStack, url: str) -> Any:
    from redis import Redis

    return stack.enter_context(Redis.from_url(url))


def pottery(stack: ExitStack, urls: list[str], tuned: bool) -> Take:
    import pottery

    class Lock(pottery.Redlock):  # type: ignore[misc]  # the library has no types
        # The maximum of the random retry delay, for which the library has no option.
        _RETRY_DELAY = 0.01 if tuned else pottery.Redlock._RETRY_DELAY

    masters = {_redis(stack, url) for url in urls}

    def take(resource: str) -> Release:
        lock = Lock(key=resource, masters=masters, auto_release_time=TTL)
        lock.acquire()
        return cast(Release, lock.release)

    return take


def redis_py(stack: ExitStack, urls: list[str], tuned: bool) -> Take:
    [url] = urls
    server = _redis(stack, url)
    options = {"sleep": 0.005} if tuned else {}

    def take(resource: str) -> Release:
        lock = server.lock(resource, timeout=TTL, **options)
        lock.acquire()
        return cast(Release, lock.release)

    return take


def python_redis_lock(stack: ExitStack, urls: list[str], tuned: bool) -> Take:
    import redis_lock

    assert not tuned  # it waits with BLPOP and has no retry delay
    [url] = urls
    server = _redis(stack, url)

    def take(resource: str) -> Release:
        lock = redis_lock.Lock(server, resource, expire=TTL)
        lock.acquire()
        return cast(Release, lock.release)

    return take


LIBRARIES: dict[str, Callable[[ExitStack, list[str], bool], Take]] = {
    "quorlock": quorlock,
    "pottery": pottery,
    "redis-py": redis_py,
    "python-redis-lock": python_redis_lock,
}
