"""Processes in two languages that wait in the same queue."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from nodes import keys, listening, queued
from servers import Servers
from waiting import TIMEOUT, wait_until

import quorlock

HERE = Path(__file__).resolve().parent
PYTHON, NODE = [sys.executable, str(HERE / "waiter.py")], ["node", str(HERE / "waiter.js")]
LONG = 600
"""A time, in seconds, longer than any test. With this retry delay, waiters get the lock only if
they are notified."""


def test_waiters_of_both_languages_are_served_in_order_of_arrival(
    start_servers: Callable[..., Servers], tmp_path: Path
) -> None:
    servers = start_servers(3)
    order = tmp_path / "order"
    order.touch()
    settings = {"urls": servers.urls, "order": str(order), "seconds": LONG}
    waiters: list[subprocess.Popen[bytes]] = []
    names = list(range(8))
    with quorlock.Client(servers.urls, ttl=LONG) as client:
        try:
            with client.lock("r"):
                for name in names:
                    program = NODE if name % 2 else PYTHON
                    waiter = json.dumps(settings | {"name": name})
                    waiters.append(subprocess.Popen([*program, waiter]))
                    wait_until(lambda: queued(servers) == [len(waiters)] * 3)
                assert order.read_text() == ""
            assert [waiter.wait(TIMEOUT) for waiter in waiters] == [0] * len(waiters)
        finally:
            for process in waiters:
                process.kill()
                process.wait()
    assert list(map(int, order.read_text().split())) == names
    wait_until(lambda: not keys(servers))
    wait_until(lambda: listening(servers) == [0, 0, 0])
