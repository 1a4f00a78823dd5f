"""Processes in two languages that lock the same resources in different orders."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from nodes import keys
from servers import Servers
from waiting import wait_until

HERE = Path(__file__).resolve().parent
PYTHON, NODE = [sys.executable, str(HERE / "orders.py")], ["node", str(HERE / "orders.js")]
WORKERS = [
    (PYTHON, ["a", "b"]),
    (PYTHON, ["b", "c"]),
    (NODE, ["b", "a"]),
    (NODE, ["c", "b"]),
]
TURNS = 200
WAIT = 240
"""The `wait` option of the workers, in seconds: far longer than all turns take on a loaded machine,
so only a deadlock exceeds it."""


def test_opposite_orders_do_not_deadlock_and_exclude(
    start_servers: Callable[..., Servers], tmp_path: Path
) -> None:
    servers = start_servers(3)
    for resource in "abc":
        (tmp_path / resource).write_text(json.dumps({"count": 0, "fence": 0}))
    settings = {"urls": servers.urls, "folder": str(tmp_path), "turns": TURNS, "wait": WAIT}
    workers = [
        subprocess.Popen(
            [*command, json.dumps(settings | {"resources": resources})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for command, resources in WORKERS
    ]
    try:
        for worker in workers:
            assert worker.stdout
            assert worker.stdout.readline() == "ready\n"
        for worker in workers:
            assert worker.stdin
            worker.stdin.write("go\n")
            worker.stdin.flush()
        assert [worker.wait(2 * WAIT) for worker in workers] == [0] * len(workers)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    # Without exclusion, workers would overwrite each other's counts.
    held = Counter(resource for _, resources in WORKERS for resource in resources)
    for resource, times in held.items():
        assert json.loads((tmp_path / resource).read_text())["count"] == times * TURNS
    wait_until(lambda: not keys(servers))
