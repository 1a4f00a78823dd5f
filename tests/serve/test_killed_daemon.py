"""A daemon that is killed leaves nothing on the nodes, once the ttl of its leases is over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import CommandLine
from daemons import Daemon
from nodes import keys
from servers import Servers
from waiting import wait_until

TTL = 2.0
"""The ttl of the leases, in seconds."""


@pytest.fixture
def killed(servers: Servers, tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that is to be killed, in front of nodes without keys."""
    servers.flush()
    quorlock = CommandLine("cargo", servers.urls)
    with Daemon(quorlock, tmp_path / "quorlock.sock", "--ttl", f"{TTL}s") as daemon:
        yield daemon


def test_the_leases_of_a_killed_daemon_last_for_their_ttl(
    killed: Daemon, servers: Servers, daemon: Daemon
) -> None:
    with killed.connect() as client, killed.connect() as waiter, daemon.connect() as other:
        leases = [
            client.lock("lock")[0],
            client.lock("a", "b")[0],
            client.lock("shared", "MODE", "shared")[0],
            client.lock("semaphore", "LIMIT", 3, "PERMITS", 2)[0],
        ]
        waiter.send("LOCK", "lock", "WAIT", "FOREVER")
        killed.wait_until_waiting()
        left = min(int(str(client.ask("CHECK", lease))) for lease in leases)
        checked = time.monotonic()
        killed.process.kill()
        assert client.is_closed()
        # The daemon of another host is refused for as long as the clients were told.
        other.send("LOCK", "lock", "WAIT", 30_000)
        reply = other.reply()
        assert time.monotonic() >= checked + left / 1000
        assert isinstance(reply, list)
        assert other.ask("UNLOCK", str(reply[0])) == 1
    wait_until(lambda: not keys(servers))
    for server in servers:
        reply = server.command("KEYS", "*")
        assert isinstance(reply, list)
        kept = [str(key) for key in reply]
        assert all(key.endswith((":fence", ":permits")) for key in kept)
        assert -1 not in [server.command("PTTL", key) for key in kept]
