"""Locks whose keys were set by a program that is not a compatible lock library."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from servers import Servers

import quorlock


@pytest.mark.parametrize(
    "command",
    [
        ["HSET", "r", "holder:thread", "1"],
        ["ZADD", "r", "1", "holder"],
        ["RPUSH", "r", "holder"],
        ["SET", "r", "holder"],
    ],
    ids=["a hash", "a sorted set", "a list", "a string that does not expire"],
)
def test_any_foreign_value_at_the_key_counts_as_held_and_is_kept(
    start_servers: Callable[..., Servers], command: list[str]
) -> None:
    servers = start_servers(3)
    with quorlock.Client(servers.urls, node_timeout=20, connect_timeout=20) as client:
        for server in list(servers)[:2]:
            server.command(*command)
        lock = client.lock("r", wait=0)
        assert lock.locked()
        with pytest.raises(quorlock.LockTimeoutError):
            lock.acquire()
        for server in list(servers)[:2]:
            assert server.command("EXISTS", "r") == 1, "the foreign key was deleted"
            server.command("DEL", "r")
        assert lock.acquire().release()
