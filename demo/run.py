"""`make demo`: Python and Node.js processes fight for one lock on five real servers.

They do read-modify-write on a ledger that loses updates without a lock. Midway one server is
killed and one frozen; later both come back. Exit status 1 if an update was lost, two leases
overlapped, or a fence did not increase. LOCK=off runs the same without the lock, to show that the
check can fail; SECONDS sets how long it takes.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from servers import Servers  # noqa: E402

LOOPS = 3
WORKERS = {
    "Python, threads": ([sys.executable, str(HERE / "worker.py")], "threads"),
    "Python, asyncio": ([sys.executable, str(HERE / "worker.py")], "asyncio"),
    "Node.js, first": (["node", str(HERE / "worker.js")], "node"),
    "Node.js, second": (["node", str(HERE / "worker.js")], "node"),
}


@dataclass
class Worker:
    """One process, and what it has done."""

    name: str
    history: Path
    process: subprocess.Popen[bytes]
    entries: list[dict[str, Any]] = field(default_factory=list)

    def load(self) -> None:
        lines = self.history.read_text().splitlines() if self.history.exists() else []
        self.entries = [json.loads(line) for line in lines]

    @property
    def turns(self) -> list[dict[str, Any]]:
        return [entry for entry in self.entries if "error" not in entry]

    @property
    def errors(self) -> list[str]:
        return [entry["error"] for entry in self.entries if "error" in entry]

    def wait(self) -> None:
        """Waits for its end, which was asked for."""
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def show(text: str, end: str = "\n") -> None:
    """A line of progress; on a terminal the last one is written over."""
    if sys.stdout.isatty():
        print(f"\r\x1b[K{text}", end=end, flush=True)
    elif end == "\n":
        print(text, flush=True)


def start(folder: Path, urls: list[str], locked: bool) -> list[Worker]:
    ledger = folder / "ledger"
    ledger.write_text("0")
    workers = []
    for number, (name, (command, kind)) in enumerate(WORKERS.items()):
        history = folder / f"history-{number}"
        settings = {
            "urls": urls,
            "ledger": str(ledger),
            "history": str(history),
            "loops": LOOPS,
            "locked": locked,
            "kind": kind,
        }
        # Ctrl-C goes to this process alone; the end of stdin tells the worker that it is over.
        process = subprocess.Popen(
            [*command, json.dumps(settings)], stdin=subprocess.PIPE, start_new_session=True
        )
        workers.append(Worker(name, history, process))
    return workers


def watch(workers: list[Worker], servers: Servers, seconds: float) -> None:
    """Lets the workers work, and the servers fail and come back."""
    events = [
        (0.35, "server 2 is killed", servers[1].kill),
        (0.45, "server 4 is frozen", servers[3].freeze),
        (0.70, "server 2 is restarted, empty", servers[1].restart),
        (0.80, "server 4 goes on", servers[3].thaw),
    ]
    next_line = 1.0
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < seconds:
        if events and elapsed >= events[0][0] * seconds:
            _, text, action = events.pop(0)
            action()
            show(f"{elapsed:5.1f} s  {text}")
        counts = [
            worker.history.read_bytes().count(b'"from"') if worker.history.exists() else 0
            for worker in workers
        ]
        due = not sys.stdout.isatty() and elapsed >= next_line
        next_line += due
        show(f"{elapsed:5.1f} s  turns of each worker: {counts}", end="\n" if due else "")
        for worker in workers:
            if worker.process.poll() is not None:
                raise SystemExit(f"{worker.name} ended with status {worker.process.returncode}")
        time.sleep(0.1)
    show(f"{seconds:5.1f} s  the end")


def stop(workers: list[Worker]) -> None:
    """Asks all of them to end, then waits."""
    for worker in workers:
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.stdin
        worker.process.stdin.close()
    for worker in workers:
        worker.wait()


def table(workers: list[Worker]) -> None:
    print(f"\n{'worker':<18}{'turns':>8}{'median':>12}{'p99':>12}{'longest':>12}  errors")
    for worker in workers:
        waits = sorted((turn["from"] - turn["asked"]) / 1e6 for turn in worker.turns) or [0.0]
        figures = (statistics.median(waits), waits[int(0.99 * (len(waits) - 1))], waits[-1])
        shown = "".join(f"{figure:>9.1f} ms" for figure in figures)
        counted = Counter(worker.errors).items()
        errors = ", ".join(f"{error}: {count}" for error, count in counted) or "none"
        print(f"{worker.name:<18}{len(worker.turns):>8}{shown}  {errors}")


def check(workers: list[Worker], total: int, locked: bool) -> bool:
    """Prints what went wrong, if anything; returns whether all is well."""
    turns = sorted((turn for worker in workers for turn in worker.turns), key=lambda t: t["from"])
    lost = len(turns) - total
    overlaps = sum(later["from"] < earlier["to"] for earlier, later in itertools.pairwise(turns))
    idle = [worker.name for worker in workers if not worker.turns]
    print(f"\nupdates made {len(turns)}, in the ledger {total}: lost {lost}")
    print(f"overlapping turns: {overlaps}")
    failed = [worker.name for worker in workers if worker.process.returncode]
    sound = lost == 0 and overlaps == 0 and not idle and not failed
    if failed:
        print(f"ended with an error: {', '.join(failed)}")
    if idle:
        print(f"without any turn: {', '.join(idle)}")
    if locked:
        late = sum(turn["to"] > turn["valid_until"] for turn in turns)
        print(f"turns that outlived their lease: {late}")
        fences = [turn["fence"] for turn in turns]
        disorder = sum(later <= earlier for earlier, later in itertools.pairwise(fences))
        print(f"fences that did not increase: {disorder}")
        sound = sound and disorder == 0
    return sound


def main() -> int:
    locked = os.environ.get("LOCK", "on") != "off"
    seconds = float(os.environ.get("SECONDS", "12"))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quorlock-demo-")))
        servers = stack.enter_context(Servers(5))
        kind = "one lock" if locked else "NO lock"
        show(f"five servers, {len(WORKERS)} processes with {LOOPS} loops each, {kind}")
        workers = start(folder, servers.urls, locked)
        try:
            watch(workers, servers, seconds)
        finally:
            stop(workers)
        for worker in workers:
            worker.load()
        table(workers)
        sound = check(workers, int((folder / "ledger").read_text()), locked)
    if sound:
        print("\nAll is well.")
    elif locked:
        print("\nThe lock failed.")
    else:
        print("\nThis is what the lock prevents: updates were lost without it.")
    return 0 if sound else 1


def end(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
