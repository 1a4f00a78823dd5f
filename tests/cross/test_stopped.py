"""A holder whose process is suspended for longer than its lease, and then resumed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from nodes import is_free
from servers import Servers
from waiting import TIMEOUT, wait_until

import quorlock

HERE = Path(__file__).resolve().parent


class Storage:
    """Storage that refuses a write whose fence is smaller than the largest fence so far."""

    def __init__(self) -> None:
        self.value = ""
        self._seen = 0

    def write(self, value: str, fence: int) -> bool:
        if fence < self._seen:
            return False
        self._seen = fence
        self.value = value
        return True


@pytest.mark.parametrize(
    "command", [[sys.executable, HERE / "stopped.py"], ["node", HERE / "stopped.js"]]
)
def test_a_stopped_holder_sees_the_loss_and_cannot_overwrite_the_next(
    command: list[str | Path], start_servers: Callable[..., Servers]
) -> None:
    servers = start_servers(3)
    storage = Storage()
    holder = subprocess.Popen(
        [*command, *servers.urls], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdin
        assert holder.stdout
        fence = int(holder.stdout.readline())
        assert storage.write("from the first", fence)
        holder.send_signal(signal.SIGSTOP)
        wait_until(lambda: is_free(servers, "r"))
        with quorlock.Client(servers.urls) as client, client.lock("r", ttl=600) as lease:
            assert lease.fence > fence
            assert storage.write("from the second", lease.fence)
            wait_until(lambda: all(s.command("GET", "r") == lease.token for s in servers))
            holder.stdin.write("go on\n")
            holder.stdin.flush()
            holder.send_signal(signal.SIGCONT)
            # The lease is lost when it is first checked, and its late release deletes nothing.
            report = json.loads(holder.stdout.readline())
            assert report == {"valid": False, "lost": True, "released": False}
            assert all(server.command("GET", "r") == lease.token for server in servers)
            # A late write with the old fence is refused.
            assert not storage.write("late, from the first", fence)
            assert storage.value == "from the second"
            assert lease.valid
        assert holder.wait(TIMEOUT) == 0
    finally:
        holder.kill()
