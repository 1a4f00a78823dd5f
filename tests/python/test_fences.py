"""Fences increase even if clocks are wrong, and their keys expire soon."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from servers import Server, Servers
from waiting import wait_until

import quorlock

HOUR = 3600
YEAR = 365 * 24 * HOUR

ACQUIRE = """
import sys, quorlock
with quorlock.Client(sys.argv[1:]) as client, client.lock("r") as lease:
    print(lease.fence)
"""


def acquire(urls: list[str], skewed: str, skew: int) -> int:
    """Acquires a lease in a process whose clock is `skew` seconds ahead. Returns its fence."""
    environment = os.environ | {"LD_PRELOAD": skewed, "SKEW": str(skew)}
    program = [sys.executable, "-c", ACQUIRE, *urls]
    done = subprocess.run(
        program, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def milliseconds(server: Server, key: str) -> int:
    """Returns the remaining time to live of the key, in milliseconds."""
    left = server.command("PTTL", key)
    assert isinstance(left, int)
    return left


def lasts(servers: Servers, key: str, milliseconds_left: int) -> bool:
    """Returns whether the key lives for longer than that on all nodes."""
    return all(milliseconds(server, key) > milliseconds_left for server in servers)


def test_fences_increase_despite_wrong_client_clocks_and_expired_counters(
    start_servers: Callable[..., Servers], skewed: str
) -> None:
    servers = start_servers(3)
    last = 0
    for skew in [0, 90, HOUR, -HOUR, YEAR, -YEAR, 0]:
        fence = acquire(servers.urls, skewed, skew)
        assert fence > last, skew
        # Fences advance by less than a day in microseconds, so a wrong clock cannot use up their
        # range.
        assert last == 0 or fence - last < 86_400_000_000
        last = fence
        for server in servers:
            server.command("DEL", "{r}:fence")


@pytest.mark.parametrize("skews", [(HOUR, 0, -HOUR), (1, 0, -1), (0, 0, YEAR)])
def test_fences_increase_despite_skewed_node_clocks(
    start_servers: Callable[..., Servers], skewed: str, skews: tuple[int, ...]
) -> None:
    started = [
        start_servers(1, environment={"LD_PRELOAD": skewed, "SKEW": str(skew)}) for skew in skews
    ]
    urls = [url for servers in started for url in servers.urls]
    last = 0
    # Each pair of nodes is the majority once, so the fence keys of the nodes differ.
    with quorlock.Client(urls, node_timeout=5) as client:
        for down in [None, 0, 1, 2, None]:
            if down is not None:
                started[down][0].freeze()
            for _ in range(2):
                with client.lock("r", wait=60) as lease:
                    assert lease.fence > last
                    last = lease.fence
            if down is not None:
                started[down][0].thaw()


def test_a_fence_key_expires_a_minute_after_the_ttl(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(3)
    with quorlock.Client(servers.urls, ttl=5) as client:
        for number in range(200):
            with client.lock(f"order:{number}"):
                pass
        for server in servers:
            names = server.command("KEYS", "*:fence")
            assert isinstance(names, list)
            for name in names:
                assert 0 < milliseconds(server, str(name)) <= 65_000 + 2_000, name
        # An extension can lengthen the lifetime of the fence key, but never shortens it.
        with client.lock("held", ttl=1) as lease:
            lease.extend(1000)
            wait_until(lambda: lasts(servers, "{held}:fence", 1_000_000))
            lease.extend(1)
            assert lasts(servers, "{held}:fence", 1_000_000)
