"""The client processes of the chaos run: starts, kills, stops and ends them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cargo import build_example
from chaos.check import Entry, Violation
from chaos.history import History
from chaos.network import Network
from chaos.sockets import connections
from chaos.waits import Wait, waits

HERE = Path(__file__).resolve().parent
PYTHON = [sys.executable, str(HERE / "client.py")]
NODE = ["node", str(HERE / "client.js")]
RUST = "the binary that build_rust() finds"
KINDS: dict[str, list[str]] = {
    "Python threads": PYTHON,
    "Python asyncio": PYTHON,
    "Node.js 1": NODE,
    "Node.js 2": NODE,
    "Rust 1": [RUST],
    "Rust 2": [RUST],
}
RETRY_DELAYS = [(2, 20), (50, 200)]
"""Milliseconds. Some try so often that they hardly need to be called, and some have the default."""
END_TIMEOUT = 60.0
"""Seconds that a client may take to end when it is asked to, on a machine that is busy."""
CLOSED_TIMEOUT = 3.0
"""Seconds after which a closed client has no connection any more. Those on which it was called end
by themselves 5 s after the last wait.
"""


def build_rust() -> Path:
    """The Rust client, which is built if it is not up to date."""
    try:
        return build_example("chaos")
    except subprocess.CalledProcessError:
        message = "the Rust client of the chaos run cannot be built; see above"
        raise SystemExit(message) from None


class CrashError(Exception):
    """A client ended by itself; it is among the violations."""


class Client:
    """One client: a process at a time, each with a history of its own."""

    def __init__(
        self, name: str, command: Sequence[str], settings: dict[str, Any], group: int, folder: Path
    ) -> None:
        self.name = name
        self.histories: list[History] = []
        self.violations: list[Violation] = []
        self._command = command
        self._settings = settings
        self._group = group
        self._file = name.lower().replace(" ", "-").replace(".", "")
        self._folder = folder
        self.log = folder / f"{self._file}.log"
        """What its processes complained of."""
        self._process: subprocess.Popen[bytes] | None = None
        self._closed: float | None = None
        """When it was seen that it has closed its client, by time.monotonic()."""

    def start(self) -> None:
        path = self._folder / f"{self._file}-{len(self.histories) + 1}.jsonl"
        self.histories.append(History(path))
        settings = self._settings | {"history": str(path)}
        # Stdin tells it that it is over. It is one of the servers' group, so that none
        # survives when this process is killed, not even one that is stopped.
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, json.dumps(settings)],
                stdin=subprocess.PIPE,
                stderr=log,
                process_group=self._group,
            )

    def kill(self) -> None:
        self._running.kill()
        self._running.wait()
        self.histories[-1].did("killed")
        self._close()

    def stop(self) -> None:
        self._running.send_signal(signal.SIGSTOP)
        if hasattr(os, "waitid"):  # until all its threads stand still
            os.waitid(os.P_PID, self._running.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.histories[-1].did("stopped")

    def go_on(self) -> None:
        # Before it does: it must not seem to stand still when it runs.
        self.histories[-1].did("continued")
        self._running.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Asks it to see its waits and turns to their ends, and to close its client."""
        assert self._running.stdin
        self.histories[-1].did("over")
        with suppress(BrokenPipeError):
            self._running.stdin.write(b".")
            self._running.stdin.flush()

    def has_closed(self, deadline: float) -> bool:
        """Whether nothing more is to come of `end()`: its client is closed, and its connections.

        The process goes on, with whatever its client has left.
        """
        if not self.is_running:
            return True
        if self._closed is None and self._tells_that_it_is_closed:
            self._closed = time.monotonic()
        if self._closed is not None:
            left = connections(self._running.pid)
            is_late = time.monotonic() > self._closed + CLOSED_TIMEOUT
            if left and is_late:
                text = f"{self.name} has closed its client, and keeps {left} connections"
                self._violation("connection", text)
            return is_late or not left
        if time.monotonic() > deadline:
            self._violation("hang", f"{self.name} does not close its client")
            for wait in self.under_way:
                self._violation("stuck", f"{wait} has not ended, though all is well")
            self.kill()
            return True
        return False

    def wait(self, deadline: float) -> None:
        """Lets it end, unless it was killed, and waits for that."""
        if self._process is None:
            return
        try:
            assert self._running.stdin
            self._running.stdin.close()
            status = self._running.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._violation("hang", f"{self.name} does not end")
            self.kill()
        else:
            if status:
                self._violation("crash", f"{self.name} ended with status {status}; see {self.log}")

    @property
    def holds(self) -> bool:
        """Whether it has something that it has not begun to release."""
        self.histories[-1].load()
        return bool(self.histories[-1].held)

    @property
    def _tells_that_it_is_closed(self) -> bool:
        return any(entry["event"] == "closed" for entry in self.histories[-1].load()[-1:])

    @property
    def under_way(self) -> list[Wait]:
        """What it waits for."""
        self.histories[-1].load()
        return waits([(self.name, self.histories[-1].asks.values())])

    @property
    def is_running(self) -> bool:
        """Whether there is a process, stopped or not."""
        return self._process is not None and self._process.poll() is None

    def check_running(self) -> None:
        """A process that was not killed has not ended."""
        if self._process is not None and not self.is_running:
            text = f"{self.name} ended by itself with status {self._process.returncode}"
            self._violation("crash", f"{text}; see {self.log}")
            raise CrashError

    @property
    def entries(self) -> list[Entry]:
        """All histories, one after the other."""
        return [entry for history in self.histories for entry in history.all]

    def granted_since(self, moment: int) -> bool:
        """Whether the running process was granted a lease that it asked for after this."""
        for entry in reversed(self.histories[-1].load()):
            if entry["event"] == "granted" and entry["asked"] > moment:
                return True
            if entry["at"] < moment:
                return False
        return False

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def _close(self) -> None:
        assert self._running.stdin
        self._running.stdin.close()
        self._process = None

    def _violation(self, kind: str, text: str) -> None:
        self.violations.append(Violation(kind, time.monotonic_ns(), text))


class Clients:
    """All clients."""

    def __init__(
        self,
        urls: Sequence[Sequence[str]],
        settings: dict[str, Any],
        group: int,
        folder: Path,
        network: Network | None,
    ) -> None:
        """Each client in turn gets the next list of URLs; there is but one, if all is well."""
        rust = str(build_rust())
        self._clients = []
        for number, (name, command) in enumerate(KINDS.items()):
            words = [rust if word == RUST else word for word in command]
            if network is not None:
                words = [*network.command(number), *words]
            own = {
                "name": name,
                "kind": name.split()[1],
                "urls": urls[number % len(urls)],
                "retry_delay": RETRY_DELAYS[number % len(RETRY_DELAYS)],
            }
            self._clients.append(Client(name, words, settings | own, group, folder))
        for client in self._clients:
            client.start()

    def __iter__(self) -> Iterator[Client]:
        return iter(self._clients)

    def __getitem__(self, number: int) -> Client:
        return self._clients[number]

    def __len__(self) -> int:
        return len(self._clients)

    def watch(self, until: float) -> None:
        """Waits until this moment of time.monotonic(), and sees to it that all clients run."""
        while (left := until - time.monotonic()) > 0:
            for client in self._clients:
                client.check_running()
            time.sleep(min(left, 0.05))

    def close(self) -> None:
        """Asks all to see their waits to an end and to close their clients, and waits for it."""
        for client in self._clients:
            client.end()
        deadline = time.monotonic() + END_TIMEOUT
        left = self._clients
        while left := [client for client in left if not client.has_closed(deadline)]:
            time.sleep(0.02)

    def end(self) -> None:
        """Waits until all have ended."""
        deadline = time.monotonic() + END_TIMEOUT
        for client in self._clients:
            client.wait(deadline)

    def kill(self) -> None:
        """Ends those that are left."""
        for client in self._clients:
            if client.is_running:
                client.kill()

    @property
    def violations(self) -> list[Violation]:
        """Which of them did not behave."""
        return [violation for client in self._clients for violation in client.violations]
