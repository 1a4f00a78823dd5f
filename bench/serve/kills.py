"""How soon a waiter gets the lock of a client that is killed."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from daemons import Connection
from waiting import wait_until

from bench.group import Group
from bench.progress import progress
from bench.serve.daemon import start
from bench.settings import ROOT, pick

KILLS = pick(50, 5)
"""How many holders are killed."""
HOLD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from daemons import Connection
connection = Connection(Path(sys.argv[2]))
connection.lock("r", "TTL", 60_000)
print("locked", flush=True)
sys.stdin.read()
"""
"""A client that holds a lock. The ttl is so long that it cannot be what frees the lock."""


def measure() -> dict[str, float]:
    """Returns the median times in milliseconds, by the daemon of the waiter."""
    with ExitStack() as stack:
        urls = Group(stack).urls
        holders, others = start(stack, urls).path, start(stack, urls).path
        found = {}
        for name, waiters in {"the same daemon": holders, "another daemon": others}.items():
            progress(f"{KILLS} holders are killed, waiters of {name}")
            times = [_kill(holders, waiters) for _ in range(KILLS)]
            found[name] = round(median(times), 3)
        return found


def _kill(holders: Path, waiters: Path) -> float:
    """Kills a holder while a client waits. Returns the milliseconds until that has the lock."""
    program = [sys.executable, "-c", HOLD, str(ROOT / "tests"), str(holders)]
    holder = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder, Connection(waiters) as waiter, Connection(waiters) as watcher:
        assert holder.stdout
        assert holder.stdout.readline() == b"locked\n"
        waiter.send("LOCK", "r", "WAIT", 30_000)
        wait_until(lambda: watcher.status()["waiting"] == 1)
        began = time.perf_counter()
        holder.kill()
        lease = waiter.reply()
        took = time.perf_counter() - began
        assert isinstance(lease, list)
        assert waiter.ask("UNLOCK", str(lease[0])) == 1
        return took * 1e3
