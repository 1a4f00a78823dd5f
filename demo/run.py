"""`make demo`: Python and Node.js processes share one counter under a lock on five real servers.

Each process reads the counter, waits a moment and writes it back plus one, which loses updates
unless a lock keeps the others out. Midway one server is killed and one frozen; later both come
back. The exit status is 1 if an update was lost, two processes held the lock at the same time, or a
fencing token did not increase. LOCK=off runs the same without the lock, to show that the check can
fail. SECONDS sets how long it runs.

The run leaves a timeline in build/demo.html (without the lock: build/demo-without-lock.html), also
after Ctrl-C. TIMELINES names another directory for it.
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
from demo.record import Record, ServerEvent  # noqa: E402
from demo.result import (  # noqa: E402
    is_sound,
    next_step,
    print_checks,
    print_processes,
    verdict,
)
from demo.timeline import draw  # noqa: E402
from demo.worker_process import (  # noqa: E402
    NAMES,
    WorkerProcess,
    check,
    start,
    stop,
    wait_for_updates,
)

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


def watch(
    workers: list[WorkerProcess], servers: Servers, seconds: float, done: list[ServerEvent]
) -> None:
    """Print the progress of the processes, while servers fail and come back. Append to `done` what
    is done to servers."""
    events = [
        (0.35, 2, "killed", servers[1].kill),
        (0.45, 4, "frozen", servers[3].freeze),
        (0.70, 2, "restarted, empty", servers[1].restart),
        (0.80, 4, "resumed", servers[3].thaw),
    ]
    print(f"\n{'':8}   servers   updates so far by")
    print(f"{'time':>8}   up        " + "".join(f"{name:<{COLUMN}}" for name in NAMES).rstrip())
    next_row = 1.0
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < seconds:
        if events and elapsed >= events[0][0] * seconds:
            _, number, what, action = events.pop(0)
            done.append(ServerEvent(time.monotonic_ns(), number, what))
            action()
            row(elapsed, servers, f"-- server {number} is {what}")
        if elapsed >= next_row:
            counts = [f"{worker.count_updates():<{COLUMN},}" for worker in workers]
            row(elapsed, servers, "".join(counts).rstrip())
            next_row += 1.0
        check(workers)
        time.sleep(0.1)


def run(locked: bool, seconds: float) -> bool:
    """Run the processes and print the results. Return whether all checks passed."""
    interrupted = True
    events: list[ServerEvent] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quorlock-demo-")))
        servers = stack.enter_context(Servers(5))
        workers = start(folder, servers.urls, locked)
        began = time.monotonic_ns()
        try:
            wait_for_updates(workers)
            watch(workers, servers, seconds, events)
            interrupted = False
        finally:
            ended = time.monotonic_ns()
            stop(workers)
            record = Record(
                locked=locked,
                began=began,
                ended=ended,
                servers=len(servers),
                events=events,
                processes=[worker.load() for worker in workers],
                counter=int((folder / "counter").read_text() or 0),
                interrupted=interrupted,
            )
            report(record)
    return is_sound(record)


def report(record: Record) -> None:
    """Print the results and leave the timeline, also of a run that was interrupted."""
    if not record.interrupted:
        print_processes(record)
        print_checks(record)
    print(f"\n{verdict(record)}")
    page = timeline_path(record.locked)
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(draw(record), encoding="utf-8")
        print(f"Timeline, for a browser: {page.as_uri()}")
    except OSError as error:
        print(f"The timeline could not be written: {error}")
    print(next_step(record), end="\n" * bool(next_step(record)), flush=True)


def timeline_path(locked: bool) -> Path:
    """The file for the timeline. A run without the lock has its own, to compare them."""
    name = "demo.html" if locked else "demo-without-lock.html"
    return Path(os.environ.get("TIMELINES", ROOT / "build")).resolve() / name


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
