"""The lock on several versions of Redis, Valkey and Redict."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from interop.installing import NotInstalledError
from nodes import is_free, keys, queued
from servers import Servers
from versions.installing import VERSIONS, Version
from waiting import wait_until

import quorlock

LONG = 600.0
"""A time, in seconds, longer than any test."""

NO_RETRIES: dict[str, Any] = {"ttl": LONG, "wait": LONG, "retry_delay": (LONG, LONG)}
"""Options with which a waiter can get the lock only if it is notified."""


@pytest.fixture(params=VERSIONS, ids=lambda version: f"{version.name}-{version.number}x")
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Version:
    """The version of the servers that the test starts."""
    version: Version = request.param
    try:
        monkeypatch.setenv("REDIS_SERVER", str(version.install()))
    except NotInstalledError as error:
        pytest.skip(f"{version.name} {version.number}x cannot be installed here: {error}")
    return version


def test_locking_waiting_and_fencing_work(
    start_servers: Callable[..., Servers], version: Version
) -> None:
    servers = start_servers(3)
    with (
        quorlock.Client(servers.urls, **NO_RETRIES) as holder,
        quorlock.Client(servers.urls, **NO_RETRIES) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        lease = holder.lock("r").acquire()
        assert other.lock("r").locked()
        with pytest.raises(quorlock.LockTimeoutError):
            other.lock("r", wait=0).acquire()
        lease.extend(2 * LONG)
        assert lease.remaining > LONG

        waiting = pool.submit(other.lock("r").acquire)
        wait_until(lambda: queued(servers) == [1, 1, 1])
        assert lease.release()
        following = waiting.result(60)
        assert following.fence > lease.fence
        assert following.release()
        assert not lease.release()
        wait_until(lambda: not keys(servers))

        with holder.lock("a", "b") as several:
            assert several.fences.keys() == {"a", "b"}
            with pytest.raises(quorlock.LockTimeoutError):
                other.lock("b", wait=0).acquire()
        wait_until(lambda: not keys(servers))


def test_a_lease_survives_a_restart_and_notices_a_stolen_key(
    start_servers: Callable[..., Servers], version: Version
) -> None:
    servers = start_servers(3)
    with quorlock.Client(servers.urls, ttl=LONG) as client:
        lease = client.lock("r").acquire()
        servers[0].kill()
        lease.extend()
        assert client.lock("s").acquire().release()
        # The server restarts without its keys, and the key is repaired.
        servers[0].restart()
        wait_until(lambda: _is_repaired(servers, lease))
        for server in servers:
            server.command("SET", "r", "thief")
        with pytest.raises(quorlock.LeaseLostError):
            lease.extend()
        assert not lease.valid


def test_a_new_server_does_not_vote_within_the_restart_guard(
    start_servers: Callable[..., Servers], version: Version
) -> None:
    servers = start_servers(1)
    began = time.monotonic()
    with quorlock.Client(servers.urls, ttl=1, restart_guard=1, connect_timeout=60) as client:
        with pytest.raises(quorlock.QuorumError) as caught:
            client.lock("r", wait=0).acquire()
        assert caught.value.nodes[0].outcome == "guarded"
        assert client.lock("r", wait=60).acquire().release()
        assert time.monotonic() - began > 0.9
        assert is_free(servers, "r")


def test_the_doctor_recognizes_the_version(
    start_servers: Callable[..., Servers], version: Version
) -> None:
    servers = start_servers(3, args=["--appendonly", "yes", "--appendfsync", "always"])
    with quorlock.Client(servers.urls) as client:
        diagnosis = client.doctor()
    assert diagnosis.level == version.level, str(diagnosis)
    for node in diagnosis.nodes:
        assert {each.check for each in node.findings if each.level != "ok"} <= {"server"}
        assert node.kind == version.name
        assert str(node.version).startswith(version.number)


def _is_repaired(servers: Servers, lease: quorlock.Lease) -> bool:
    lease.extend()
    return servers[0].command("GET", "r") == lease.token
