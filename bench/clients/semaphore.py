"""Cycles of quorlock in Python with blocking calls: `semaphore.py KIND URL...`. KIND is `lock`, or
the limit of the semaphores."""

import sys

from serving import serve

import quorlock

kind, *urls = sys.argv[1:]
client = quorlock.Client(urls, auto_extend=False)


def cycle_lock(key: str) -> None:
    with client.lock(key):
        pass


def cycle_semaphore(key: str) -> None:
    with client.semaphore(key, limit=int(kind)):
        pass


serve(f"quorlock Python {kind}", cycle_lock if kind == "lock" else cycle_semaphore)
