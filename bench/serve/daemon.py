"""`quorlock serve` as it is published."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.settings import PROGRAMS


@dataclass(frozen=True)
class Daemon:
    path: Path
    pid: int


def start(stack: ExitStack, urls: Sequence[str]) -> Daemon:
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
    return Daemon(path, process.pid)
