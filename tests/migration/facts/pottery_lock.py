"""Checks statements in docs/migration/pottery.md: `pottery_lock.py FACT DEAD_URL URL...`."""

from __future__ import annotations

import inspect
import sys

import pottery
from redis import Redis


def nodes(urls: list[str]) -> set[Redis]:
    return {Redis.from_url(url) for url in urls}


def the_key_has_a_prefix(dead: str, urls: list[str]) -> None:
    with pottery.Redlock(key="r", masters=nodes(urls)) as lock:
        assert lock.key == "redlock:r"
        assert any(node.exists("redlock:r") for node in nodes(urls))


def it_waits_forever_by_default(dead: str, urls: list[str]) -> None:
    parameters = inspect.signature(pottery.Redlock).parameters
    assert parameters["context_manager_timeout"].default == -1
    assert parameters["auto_release_time"].default == 10


def a_lock_can_be_extended_only_three_times(dead: str, urls: list[str]) -> None:
    with pottery.Redlock(key="r", masters=nodes(urls)) as lock:
        for _ in range(3):
            lock.extend()
        try:
            lock.extend()
        except pottery.TooManyExtensions:
            return
    raise AssertionError("it did not raise")


def the_error_of_a_block_is_replaced_if_the_lock_was_lost(dead: str, urls: list[str]) -> None:
    context = None
    try:
        with pottery.Redlock(key="r", masters=nodes(urls)):
            for node in nodes(urls):
                node.delete("redlock:r")
            raise KeyError("the work's own error")
    except pottery.ReleaseUnlockedLock as error:
        context = error.__context__
    assert isinstance(context, KeyError)


def nodes_that_are_down_are_reported_only_on_request(dead: str, urls: list[str]) -> None:
    down = nodes([dead, dead, urls[0]])
    lock = pottery.Redlock(key="r", masters=down)
    assert lock.acquire(blocking=False) is False
    try:
        lock.acquire(blocking=False, raise_on_redis_errors=True)
    except pottery.QuorumIsImpossible:
        return
    raise AssertionError("it did not raise")


if __name__ == "__main__":
    _, fact, dead, *urls = sys.argv
    globals()[fact](dead, urls)
