"""Fences grow whatever clocks say, and nodes keep little of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from servers import Server, Servers

import quorlock

HOUR = 3600
YEAR = 365 * 24 * HOUR

ACQUIRE = """
import sys, quorlock
with quorlock.Client(sys.argv[1:]) as client, client.lock("r") as lease:
    print(lease.fence)
"""


def acquire(urls: list[str], skewed: str, skew: int) -> int:
    """The fence of a lease in a program whose clock is so many seconds ahead."""
    environment = os.environ | {"LD_PRELOAD": skewed, "SKEW": str(skew)}
    program = [sys.executable, "-c", ACQUIRE, *urls]
    done = subprocess.run(
        program, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def milliseconds(server: Server, key: str) -> int:
    """How long the server keeps the key."""
    left = server.command("PTTL", key)
    assert isinstance(left, int)
    return left


def test_no_clock_of_a_client_and_no_expired_counter_makes_a_fence_smaller(
    start_servers: Callable[..., Servers], skewed: str
) -> None:
    servers = start_servers(3)
    last = 0
    for skew in [0, 90, HOUR, -HOUR, YEAR, -YEAR, 0]:
        fence = acquire(servers.urls, skewed, skew)
        assert fence > last, skew
        # No client burns the number space: a day is 86 thousand million.
        assert last == 0 or fence - last < 86_400_000_000
        last = fence
        for server in servers:
            server.command("DEL", "{r}:fence")


@pytest.mark.parametrize("skews", [(HOUR, 0, -HOUR), (1, 0, -1), (0, 0, YEAR)])
def test_fences_grow_though_the_nodes_clocks_are_apart(
    start_servers: Callable[..., Servers], skewed: str, skews: tuple[int, ...]
) -> None:
    started = [
        start_servers(1, environment={"LD_PRELOAD": skewed, "SKEW": str(skew)}) for skew in skews
    ]
    urls = [url for servers in started for url in servers.urls]
    last = 0
    # Each pair of nodes in turn is a majority, and knows what the others do not.
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


def test_a_counter_is_kept_for_a_minute_beyond_the_ttl(
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
        # An extension keeps it for longer, and never for less long.
        with client.lock("held", ttl=1) as lease:
            lease.extend(1000)
            assert all(milliseconds(server, "{held}:fence") > 1_000_000 for server in servers)
            lease.extend(1)
            assert all(milliseconds(server, "{held}:fence") > 1_000_000 for server in servers)
