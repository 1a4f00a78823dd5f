"""Checks statements in docs/migration/redlock-py.md: `redlock_py.py FACT DEAD_URL URL...`."""

from __future__ import annotations

import sys

import redlock
from redis import Redis

DAY = 86_400_000


def one_dead_node_of_three_raises_and_leaves_the_lock(dead: str, urls: list[str]) -> None:
    try:
        redlock.Redlock([*urls[:2], dead], retry_count=1).lock("r", DAY)
    except redlock.MultipleRedlockException:
        assert all(Redis.from_url(url).delete("r") for url in urls[:2])
    else:
        raise AssertionError("it did not raise")


def a_retry_count_of_zero_means_three_attempts(dead: str, urls: list[str]) -> None:
    assert redlock.Redlock(urls, retry_count=0).retry_count == 3


def nodes_that_are_down_look_like_a_lock_that_is_held(dead: str, urls: list[str]) -> None:
    for url in urls:
        Redis.from_url(url).set("r", "somebody")
    assert redlock.Redlock(urls, retry_count=1, retry_delay=0.001).lock("r", DAY) is False
    assert redlock.Redlock([dead] * 3, retry_count=1, retry_delay=0.001).lock("r", DAY) is False


def the_release_of_a_lost_lock_is_not_reported(dead: str, urls: list[str]) -> None:
    manager = redlock.Redlock(urls)
    lock = manager.lock("r", DAY)
    for url in urls:
        Redis.from_url(url).delete("r")
    assert manager.unlock(lock) is None


def ttls_are_whole_milliseconds(dead: str, urls: list[str]) -> None:
    manager = redlock.Redlock(urls)
    try:
        manager.lock("r", 2.5)
    except ValueError:
        pass
    else:
        raise AssertionError("it did not raise")
    lock = manager.lock("r", 5_000)
    assert 0 < Redis.from_url(urls[0]).pttl("r") <= 5_000
    assert 0 < lock.validity < 5_000


if __name__ == "__main__":
    _, fact, dead, *urls = sys.argv
    globals()[fact](dead, urls)
