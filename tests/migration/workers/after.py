"""A service in Python after its migration: `after.py SETTINGS`. See ../test_roll_over.py."""

from __future__ import annotations

import sys
from collections.abc import Callable

from migration.workers.turns import Settings, take_turns

import quorlock

settings = Settings.of(sys.argv[1])
client = quorlock.Client(
    settings.urls,
    key_prefix=settings.prefix,
    ttl=settings.ttl / 1000,
    wait=None,
    # Long, so that a loaded machine does not cause timeouts.
    node_timeout=5,
    connect_timeout=20,
)


def with_lock(turn: Callable[[int | None], None]) -> None:
    with client.lock("orders") as lease:
        turn(lease.fence)


take_turns(settings, with_lock)
client.close()
