"""`quorlock serve` as it is published."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from parameters import PROGRAMS


@dataclass(frozen=True)
class Service:
    path: Path
    pid: int

    def memory(self) -> int:
        """Returns the resident memory in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024


def start(stack: ExitStack, urls: Sequence[str]) -> Service:
    """Starts a daemon on the CPUs of the clients. It is killed when `stack` is closed."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="quorlock-"))
    path = Path(folder) / "socket"
    process = subprocess.Popen(
        [str(PROGRAMS / "quorlock"), "serve", "--socket", str(path)],
        env={**os.environ, "QUORLOCK_NODES": ",".join(urls)},
        stdout=subprocess.PIPE,
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    assert process.stdout
    stack.callback(process.stdout.close)
    assert process.stdout.readline().startswith(b"listening"), "the daemon does not start"
    return Service(path, process.pid)
