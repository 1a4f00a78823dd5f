"""What is common to the locks that block and to those that are awaited."""

from __future__ import annotations

TTL = 10
"""Seconds."""


class NotAcquiredError(Exception):
    """A library said that it did not get a lock that nobody else wants."""


def require(acquired: object) -> None:
    """Asserts what a library says of an acquire."""
    if not acquired:
        raise NotAcquiredError("not acquired")
