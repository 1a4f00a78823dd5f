"""Checks statements in docs/migration/redis-py-lock.md, about redis-py and python-redis-lock.

`redis_py.py FACT DEAD_URL URL...`
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import redis_lock
from redis import Redis
from redis.exceptions import LockNotOwnedError


def without_a_timeout_the_key_never_expires(dead: str, urls: list[str]) -> None:
    server = Redis.from_url(urls[0])
    with server.lock("r"):
        assert server.pttl("r") == -1


def an_extension_adds_to_the_remaining_time(dead: str, urls: list[str]) -> None:
    server = Redis.from_url(urls[0])
    with server.lock("r", timeout=600) as lock:
        lock.extend(600)
        assert server.pttl("r") > 1_000_000
        lock.extend(600, replace_ttl=True)
        assert server.pttl("r") <= 600_000


def another_thread_cannot_release(dead: str, urls: list[str]) -> None:
    server = Redis.from_url(urls[0])
    lock = server.lock("r", timeout=600)
    assert lock.acquire()
    with ThreadPoolExecutor() as pool:
        assert pool.submit(lock.release).exception()
    assert server.exists("r")
    lock.release()


def the_error_of_a_block_is_replaced_if_the_lock_was_lost(dead: str, urls: list[str]) -> None:
    context = None
    server = Redis.from_url(urls[0])
    try:
        with server.lock("r", timeout=600):
            server.delete("r")
            raise KeyError("the work's own error")
    except LockNotOwnedError as error:
        context = error.__context__
    assert isinstance(context, KeyError)


def a_waiter_in_blpop_is_not_notified_by_releases_of_other_libraries(
    dead: str, urls: list[str]
) -> None:
    server = Redis.from_url(urls[0])
    server.set("lock:r", "somebody")
    began = time.monotonic()
    with ThreadPoolExecutor() as pool:
        waiter = pool.submit(redis_lock.Lock(server, "r", expire=600).acquire, timeout=4)
        while not server.info("clients")["blocked_clients"]:
            assert not waiter.done()
        # Release the lock as another library does: only delete the key.
        server.delete("lock:r")
        assert waiter.result() is True
    assert time.monotonic() - began > 3.9, "the waiter retried before its timeout"


if __name__ == "__main__":
    _, fact, dead, *urls = sys.argv
    globals()[fact](dead, urls)
