"""Starts and stops the worker processes of the demo, and reads their histories."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from demo.record import Entry, Process

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent / "bindings-python" / "python"

LOOPS = 3
"""How many threads or tasks of each process use the lock at the same time."""

START = 60.0
"""How many seconds the processes may take to make their first updates, on a slow machine."""

PYTHON = [sys.executable, str(HERE / "worker.py")]
NODE = ["node", str(HERE / "worker.js")]
WORKERS = {
    "Python threads": (PYTHON, "threads"),
    "Python asyncio": (PYTHON, "asyncio"),
    "Node.js 1": (NODE, "node"),
    "Node.js 2": (NODE, "node"),
}
NAMES = list(WORKERS)


@dataclass
class WorkerProcess:
    """One process and its history."""

    name: str
    history: Path
    process: subprocess.Popen[bytes]

    def count_updates(self) -> int:
        """How many updates it has made so far."""
        return self.history.read_bytes().count(b'"from"') if self.history.exists() else 0

    def load(self) -> Process:
        """Read its history, after its end. A process that was killed may leave half a line."""
        lines = self.history.read_text() if self.history.exists() else ""
        complete, _, _ = lines.rpartition("\n")
        entries: list[Entry] = [json.loads(line) for line in complete.splitlines()]
        return Process(self.name, entries, failed=bool(self.process.returncode))

    def wait(self) -> None:
        """Wait until it ends. Kill it if that takes too long."""
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start(folder: Path, urls: list[str], locked: bool) -> list[WorkerProcess]:
    """Create the counter in this folder, at 0, and start all processes."""
    counter = folder / "counter"
    counter.write_text("0")
    workers = []
    for number, (name, (command, kind)) in enumerate(WORKERS.items()):
        history = folder / f"history-{number}"
        settings = {
            "urls": urls,
            "counter": str(counter),
            "history": str(history),
            "loops": LOOPS,
            "locked": locked,
            "kind": kind,
        }
        # Ctrl-C reaches only the parent. The workers stop at the end of stdin.
        process = subprocess.Popen(
            [*command, json.dumps(settings)],
            env={**os.environ, "PYTHONPATH": str(PACKAGE)},
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        workers.append(WorkerProcess(name, history, process))
    return workers


def wait_for_updates(workers: list[WorkerProcess]) -> None:
    """Wait until each process has made an update, but at most START seconds. Raise SystemExit if
    one of them has ended."""
    until = time.monotonic() + START
    while time.monotonic() < until and not all(worker.count_updates() for worker in workers):
        check(workers)
        time.sleep(0.01)


def check(workers: list[WorkerProcess]) -> None:
    """Raise SystemExit if a process has ended."""
    for worker in workers:
        if worker.process.poll() is not None:
            raise SystemExit(f"{worker.name} ended with status {worker.process.returncode}")


def stop(workers: list[WorkerProcess]) -> None:
    """Ask all of them to end, then wait."""
    for worker in workers:
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.stdin
        worker.process.stdin.close()
    for worker in workers:
        worker.wait()
