"""Shared by the blocking and the asyncio libraries."""

from __future__ import annotations

TTL = 10
"""The ttl of all locks, in seconds."""


class NotAcquiredError(Exception):
    """A library did not acquire an uncontended lock."""


def require(acquired: object) -> None:
    """Raises if the library did not acquire the lock."""
    if not acquired:
        raise NotAcquiredError("not acquired")
