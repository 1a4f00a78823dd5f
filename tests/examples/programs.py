"""Runs examples as processes: reads their output, sends signals and waits for their exit."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from waiting import TIMEOUT


class Program:
    """A process whose output, including stderr, is read line by line.

    The process and its children join the process group of the servers. If they still run when the
    servers are killed, they are killed too.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        cwd: Path,
        environment: Mapping[str, str],
        group: int,
    ) -> None:
        self.output: list[str] = []
        """All lines of the output so far."""
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [*command],
            cwd=cwd,
            env={**os.environ, **environment, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            process_group=group,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Waits for a line that matches, skips the lines before it, and returns the match."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            assert line is not None, f"no line matches {pattern!r}:\n{self.text}"
            if match := re.search(pattern, line):
                return match

    @property
    def text(self) -> str:
        """All output so far."""
        return "".join(self.output)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def freeze(self) -> None:
        """Suspends the process with SIGSTOP."""
        self.send(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        self.send(signal.SIGCONT)

    def freeze_all(self) -> None:
        """Suspends the process and its children, as if the machine were paused."""
        self.freeze()
        for child in self.children():
            os.kill(child, signal.SIGSTOP)

    def thaw_all(self) -> None:
        for child in self.children():
            os.kill(child, signal.SIGCONT)
        self.thaw()

    def children(self) -> list[int]:
        """Returns the ids of its running child processes."""
        pgrep = ["pgrep", "-P", str(self.pid)]
        found = subprocess.run(pgrep, stdout=subprocess.PIPE, text=True, check=False)
        return [int(child) for child in found.stdout.split()]

    def end(self) -> int:
        """Waits until the process exits by itself, and returns its exit status."""
        status = self._process.wait(TIMEOUT)
        # Its last lines may still be on their way. A child that outlives it keeps the pipe open.
        self._reader.join(5)
        return status

    def terminate(self) -> int:
        """Sends SIGTERM, as a service manager does, and returns the exit status."""
        self.send(signal.SIGTERM)
        return self.end()

    def kill(self) -> None:
        """Kills the process and its children."""
        children = []
        if self._process.poll() is None:
            # A stopped process starts no more children, which would keep the pipe open.
            self.freeze()
            children = self.children()
        self._process.kill()
        self._process.wait()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.output.append(line)
            self._lines.put(line)
        self._lines.put(None)
