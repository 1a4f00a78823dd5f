"""The libraries in Python, each as a function that takes a lock and returns what releases it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, cast

Release = Callable[[], object]

Take = Callable[[str], Release]
"""Waits until it has the lock on a resource; returns what releases it."""

TTL = 10
"""Seconds, for all of them: the default of most."""


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

    class Lock(pottery.Redlock):  # type: ignore[misc]  # it has no types
        # There is no option for it. The delay is random, from 0 to this.
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

    assert not tuned  # it waits in BLPOP, so there is nothing to make shorter
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
