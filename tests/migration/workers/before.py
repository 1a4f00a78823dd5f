"""A service in Python before its migration: `before.py SETTINGS`. See ../test_roll_over.py."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pottery
import redlock
from migration.workers.turns import Settings, take_turns
from redis import Redis

Held = AbstractContextManager[object]


def redlock_py(settings: Settings) -> Callable[[], Held]:
    manager = redlock.Redlock(settings.urls, retry_count=1_000, retry_delay=0.005)

    @contextmanager
    def hold() -> Iterator[None]:
        lock = manager.lock("orders", settings.ttl)
        assert lock
        yield
        manager.unlock(lock)

    return hold


def pottery_redlock(settings: Settings) -> Callable[[], Held]:
    masters = {Redis.from_url(url) for url in settings.urls}
    # Keeps the test short. The library has no option for this delay.
    pottery.Redlock._RETRY_DELAY = 0.01
    ttl = settings.ttl / 1000
    return lambda: pottery.Redlock(key="orders", masters=masters, auto_release_time=ttl)


def redis_py(settings: Settings) -> Callable[[], Held]:
    [url] = settings.urls
    server = Redis.from_url(url)
    return lambda: server.lock("orders", timeout=settings.ttl / 1000, sleep=0.005)


LIBRARIES = {"redlock-py": redlock_py, "pottery": pottery_redlock, "redis-py": redis_py}

settings = Settings.of(sys.argv[1])
hold = LIBRARIES[settings.library](settings)


def with_lock(turn: Callable[[int | None], None]) -> None:
    with hold():
        turn(None)


take_turns(settings, with_lock)
