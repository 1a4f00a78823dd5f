"""Cycles of quorlock in Python with blocking calls: `semaphore.py KIND URL...`. KIND is `lock`, or
the limit of the semaphores."""

import sys
from collections.abc import Callable

from serving import serve

import quorlock

kind, *urls = sys.argv[1:]
client = quorlock.Client(urls, auto_extend=False)


def lock(key: str) -> Callable[[], None]:
    def cycle_lock() -> None:
        with client.lock(key):
            pass

    def cycle_semaphore() -> None:
        with client.semaphore(key, limit=int(kind)):
            pass

    return cycle_lock if kind == "lock" else cycle_semaphore


serve(f"quorlock Python {kind}", lock)
