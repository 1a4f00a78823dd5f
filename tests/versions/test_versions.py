"""The lock on servers of several versions."""

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

NEVER = 600.0
PATIENT: dict[str, Any] = {"ttl": NEVER, "wait": NEVER, "retry_delay": (NEVER, NEVER)}
"""So long that whoever gets the lock within the time of a test was called."""


@pytest.fixture(params=VERSIONS, ids=lambda version: f"{version.name}-{version.number}x")
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Version:
    """A version whose servers are started in the test."""
    version: Version = request.param
    try:
        monkeypatch.setenv("REDIS_SERVER", str(version.install()))
    except NotInstalledError as error:
        pytest.skip(f"{version.name} {version.number}x cannot be installed here: {error}")
    return version


def test_the_lock(start_servers: Callable[..., Servers], version: Version) -> None:
    servers = start_servers(3)
    with (
        quorlock.Client(servers.urls, **PATIENT) as holder,
        quorlock.Client(servers.urls, **PATIENT) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        lease = holder.lock("r").acquire()
        assert other.lock("r").locked()
        with pytest.raises(quorlock.LockTimeoutError):
            other.lock("r", wait=0).acquire()
        lease.extend(2 * NEVER)
        assert lease.remaining > NEVER

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


def test_what_goes_wrong(start_servers: Callable[..., Servers], version: Version) -> None:
    servers = start_servers(3)
    with quorlock.Client(servers.urls, ttl=NEVER) as client:
        lease = client.lock("r").acquire()
        servers[0].kill()
        lease.extend()
        assert client.lock("s").acquire().release()
        # It comes back with nothing, and is given what it had.
        servers[0].restart()
        wait_until(lambda: _is_healed(servers, lease))
        for server in servers:
            server.command("SET", "r", "thief")
        with pytest.raises(quorlock.LeaseLostError):
            lease.extend()
        assert not lease.valid


def test_the_restart_guard(start_servers: Callable[..., Servers], version: Version) -> None:
    servers = start_servers(1)
    began = time.monotonic()
    with quorlock.Client(servers.urls, ttl=1, restart_guard=1, connect_timeout=60) as client:
        with pytest.raises(quorlock.QuorumError) as caught:
            client.lock("r", wait=0).acquire()
        assert caught.value.nodes[0].outcome == "guarded"
        assert client.lock("r", wait=60).acquire().release()
        assert time.monotonic() - began > 0.9
        assert is_free(servers, "r")


def test_the_doctor(start_servers: Callable[..., Servers], version: Version) -> None:
    servers = start_servers(3, args=["--appendonly", "yes", "--appendfsync", "always"])
    with quorlock.Client(servers.urls) as client:
        diagnosis = client.doctor()
    assert diagnosis.level == "ok", str(diagnosis)
    for node in diagnosis.nodes:
        assert node.kind == version.name
        assert str(node.version).startswith(version.number)


def _is_healed(servers: Servers, lease: quorlock.Lease) -> bool:
    lease.extend()
    return servers[0].command("GET", "r") == lease.token
