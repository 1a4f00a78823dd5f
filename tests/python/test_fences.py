"""Fences increase even if clocks are wrong, and their keys expire soon."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

from servers import Servers

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
