"""The Python libraries. Each function connects, and returns a function that acquires a lock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import quorlock

sys.path.append(str(Path(__file__).resolve().parents[2] / "peers" / "python"))

from blocking import LOCKS
from locks import TTL

Release = Callable[[], object]

Take = Callable[[str], Release]
"""Waits until it holds the lock on a resource, and returns a function that releases it."""


def connect(library: str, stack: ExitStack, urls: list[str], tuned: bool) -> Take:
    if library == "quorlock":
        assert not tuned
        return _quorlock(stack, urls)
    new = LOCKS[library](urls, tuned)

    def take(resource: str) -> Release:
        lock = new(resource)
        lock.acquire()
        return lock.release

    return take


def _quorlock(stack: ExitStack, urls: list[str]) -> Take:
    client = stack.enter_context(quorlock.Client(urls, ttl=TTL, wait=None))

    def take(resource: str) -> Release:
        lease = client.lock(resource).acquire()

        def release() -> None:
            if not lease.release():
                raise RuntimeError("the release was not confirmed")

        return release

    return take
