"""`make demo`: Python and Node.js processes share one counter under a lock on five real servers.

Each process reads the counter, waits a moment and writes it back plus one, which loses updates
unless a lock keeps the others out. Midway one server is killed and one frozen; later both come
back. The exit status is 1 if an update was lost, two processes held the lock at the same time, or a
fencing token did not increase. LOCK=off runs the same without the lock, to show that the check can
fail; SECONDS sets how long it runs.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from servers import Servers  # noqa: E402

from demo.prepare import PrepareError, plan, prepare  # noqa: E402
from demo.result import print_processes, print_verdict  # noqa: E402
from demo.worker_process import NAMES, WorkerProcess, start, stop  # noqa: E402

COLUMN = 17
"""The width of a process's column, in characters."""


def introduce(locked: bool, seconds: float) -> None:
    """Say what happens, what proves the lock, and what the demo does to this machine."""
    means = "under a lock that five Redis servers vote on" if locked else "WITHOUT the lock"
    print(
        "quorlock demo: four processes, two in Python and two in Node.js, add 1 to the same counter"
    )
    print(f"again and again, {means}, while one server is killed and one is frozen.")
    print("The lock works if no update is lost: then the counter ends at the number of updates.\n")
    print(plan(seconds), flush=True)


def row(elapsed: float, servers: Servers, text: str) -> None:
    """Print one line of progress: the time, how many servers answer, and a text."""
    answering = sum(server.running and not server.frozen for server in servers)
    print(f"{elapsed:6.1f} s   {answering} of {len(servers)}    {text}", flush=True)


def watch(workers: list[WorkerProcess], servers: Servers, seconds: float) -> None:
    """Print the progress of the processes, while servers fail and come back."""
    events = [
        (0.35, "server 2 is killed", servers[1].kill),
        (0.45, "server 4 is frozen", servers[3].freeze),
        (0.70, "server 2 is restarted, empty", servers[1].restart),
        (0.80, "server 4 resumes", servers[3].thaw),
    ]
    print(f"\n{'':8}   servers   updates so far by")
    print(f"{'time':>8}   up        " + "".join(f"{name:<{COLUMN}}" for name in NAMES).rstrip())
    next_row = 1.0
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < seconds:
        if events and elapsed >= events[0][0] * seconds:
            _, text, action = events.pop(0)
            action()
            row(elapsed, servers, f"-- {text}")
        if elapsed >= next_row:
            counts = [f"{worker.count_updates():<{COLUMN},}" for worker in workers]
            row(elapsed, servers, "".join(counts).rstrip())
            next_row += 1.0
        for worker in workers:
            if worker.process.poll() is not None:
                raise SystemExit(f"{worker.name} ended with status {worker.process.returncode}")
        time.sleep(0.1)


def run(locked: bool, seconds: float) -> bool:
    """Run the processes and print the results. Return whether all checks passed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quorlock-demo-")))
        servers = stack.enter_context(Servers(5))
        workers = start(folder, servers.urls, locked)
        try:
            watch(workers, servers, seconds)
        finally:
            stop(workers)
        for worker in workers:
            worker.load()
        print_processes(workers, locked)
        return print_verdict(workers, int((folder / "counter").read_text()), locked)


def main() -> int:
    locked = os.environ.get("LOCK", "on") != "off"
    seconds = float(os.environ.get("SECONDS", "12"))
    introduce(locked, seconds)
    try:
        prepare()
    except PrepareError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    print(f"3/3  Running for {seconds:g} s", flush=True)
    return 0 if run(locked, seconds) else 1


def end(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
