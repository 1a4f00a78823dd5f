"""The `quorlock serve` of a chaos run, which is killed, stopped and replaced under its clients."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chaos.check import Violation
from command_line import cargo_program

DRAIN = 1.0
"""How long clients may go on after SIGTERM, in seconds."""
END_TIMEOUT = 30.0
"""The maximum time, in seconds, that a daemon may take to exit after SIGTERM."""


class Daemon:
    """A sequence of processes that serve the same socket. Each may drain while the next runs."""

    def __init__(
        self, urls: Sequence[str], settings: dict[str, Any], group: int, folder: Path
    ) -> None:
        # The path of a Unix socket must be short, and the path of a test's folder is too long.
        self._folder = tempfile.TemporaryDirectory(prefix="quorlock-")
        self.path = f"{self._folder.name}/daemon"
        options = {
            "--socket": self.path,
            "--ttl": f"{settings['ttl']}ms",
            "--restart-guard": f"{settings['guard']}ms",
            "--node-timeout": f"{settings['node_timeout']}ms",
            "--drain": f"{DRAIN}s",
        }
        words = [word for option in options.items() for word in option]
        self._command = [cargo_program(), "serve", *words]
        self._environment = os.environ | {"QUORLOCK_NODES": ",".join(urls)}
        self._group = group
        self.log = folder / "daemon.log"
        """The file with the standard error of all its processes."""
        self._draining: list[subprocess.Popen[bytes]] = []
        self.violations: list[Violation] = []
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                process_group=self._group,
            )
        assert self._process.stdout
        if not self._process.stdout.readline().startswith(b"listening"):
            self._violation("the daemon does not start")

    def kill(self) -> None:
        self._check_running()
        self._process.kill()
        self._end(self._process)

    def stop(self) -> None:
        self._check_running()
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def drain(self) -> int:
        """Asks the process to end, and waits until it has left its socket to the next one.

        Returns the time until which it lets clients go on, in nanoseconds.
        """
        self._check_running()
        until = time.monotonic_ns() + int(DRAIN * 1e9)
        self._process.terminate()
        self._draining.append(self._process)
        deadline = time.monotonic() + END_TIMEOUT
        while Path(self.path).exists() and self._process.poll() is None:
            if time.monotonic() > deadline:
                self._violation("the daemon keeps its socket after SIGTERM")
                break
            time.sleep(0.001)
        return until

    def close(self) -> None:
        """Ends all processes."""
        self.drain()
        for process in self._draining:
            try:
                status = process.wait(END_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._violation("a daemon does not exit after SIGTERM")
                process.kill()
            else:
                if status:
                    self._violation(f"a daemon that drained exited with status {status}")
            self._end(process)
        self._folder.cleanup()

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        assert process.stdout
        process.stdout.close()

    def _check_running(self) -> None:
        if self._process.poll() is not None:
            self._violation(f"the daemon exited with status {self._process.returncode}")

    def _violation(self, text: str) -> None:
        text = f"{text}; see {self.log}"
        self.violations.append(Violation("daemon", time.monotonic_ns(), text))
