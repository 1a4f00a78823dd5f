"""Starts, kills, suspends and shuts down the client processes of the chaos run."""

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
from serve import clients as libraries

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
GO = [str(libraries.CACHE / "go" / "bin" / "chaos")]
JAVA = [*map(str, libraries.JAVA.program[:-1]), "Chaos"]
SERVE_KINDS: dict[str, list[str]] = {
    "Python asyncio": PYTHON,
    "Node.js 1": NODE,
    "Go 1": GO,
    "Go 2": GO,
    "Java 1": JAVA,
    "Java 2": JAVA,
}
"""The clients of a run with a daemon. Those in Go and Java lock through it."""
RETRY_DELAYS = [(2, 20), (50, 200)]
"""The ranges from which clients choose the delay between two tries, in milliseconds. With the
first, a client retries so often that it rarely needs a notification. The second is the default."""
END_TIMEOUT = 60.0
"""The maximum time, in seconds, that a client may take to exit. It allows for a loaded machine."""
CLOSED_TIMEOUT = 3.0
"""The maximum time, in seconds, until a closed client has no connections. It is less than the 5
seconds after which an open client closes unused subscriptions, so `close` must close them."""


def build_rust() -> Path:
    """Builds the Rust client if it is not up to date, and returns its path."""
    try:
        return build_example("chaos")
    except subprocess.CalledProcessError:
        message = "the Rust client of the chaos run cannot be built; see above"
        raise SystemExit(message) from None


class CrashError(Exception):
    """A client exited unexpectedly. This is also recorded as a violation."""


class Client:
    """One client: a sequence of processes, each with its own history."""

    def __init__(
        self, name: str, command: Sequence[str], settings: dict[str, Any], group: int, folder: Path
    ) -> None:
        self.name = name
        self.uses_daemon = command in (GO, JAVA)
        self.histories: list[History] = []
        self.violations: list[Violation] = []
        self._command = command
        self._settings = settings
        self._group = group
        self._file = name.lower().replace(" ", "-").replace(".", "")
        self._folder = folder
        self.log = folder / f"{self._file}.log"
        """The file with the standard error of all its processes."""
        self._process: subprocess.Popen[bytes] | None = None
        self._closed: float | None = None
        """The time of time.monotonic() at which the process was found to have closed its client."""

    def start(self) -> None:
        path = self._folder / f"{self._file}-{len(self.histories) + 1}.jsonl"
        self.histories.append(History(path))
        settings = self._settings | {"history": str(path)}
        # The run shuts the client down through its stdin. The client joins the process group of the
        # servers: when the run ends, the whole group is killed, including suspended processes.
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, json.dumps(settings)],
                stdin=subprocess.PIPE,
                stderr=log,
                process_group=self._group,
            )

    def kill(self) -> None:
        # From now on, a daemon may release its leases.
        self.histories[-1].add_action("killing")
        self._running.kill()
        self._running.wait()
        self.histories[-1].add_action("killed")
        self._close()

    def stop(self) -> None:
        self._running.send_signal(signal.SIGSTOP)
        self.check_running()
        if hasattr(os, "waitid"):  # wait until all its threads are stopped
            os.waitid(os.P_PID, self._running.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.histories[-1].add_action("stopped")

    def resume(self) -> None:
        # Record this before the signal: a process that is stopped in the history must not run.
        self.histories[-1].add_action("continued")
        self._running.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Asks the process to finish its waits and its work, and to close its client."""
        assert self._running.stdin
        self.histories[-1].add_action("ending")
        with suppress(BrokenPipeError):
            self._running.stdin.write(b".")
            self._running.stdin.flush()

    def has_closed(self, deadline: float) -> bool:
        """Returns whether `end()` is complete: the client and its connections are closed.

        If the client is not closed at the deadline, records violations and kills the process. A
        process with a closed client keeps running, so that connections left open can be found.
        """
        if not self.is_running:
            return True
        if self._closed is None and self._has_recorded_closed:
            self._closed = time.monotonic()
        if self._closed is not None:
            left = connections(self._running.pid)
            is_late = time.monotonic() > self._closed + CLOSED_TIMEOUT
            if left and is_late:
                text = f"{self.name} has closed its client, but still has {left} connections"
                self._violation("connection", text)
            return is_late or not left
        if time.monotonic() > deadline:
            self._violation("hang", f"{self.name} does not close its client")
            for wait in self.waits_in_progress:
                self._violation("stuck", f"{wait} has not ended, although there is no fault")
            self.kill()
            return True
        return False

    def wait(self, deadline: float) -> None:
        """Closes stdin, so that the process exits, and waits for it. Does nothing if it was killed.

        At the deadline, records a violation and kills the process.
        """
        if self._process is None:
            return
        try:
            assert self._running.stdin
            self._running.stdin.close()
            status = self._running.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._violation("hang", f"{self.name} does not exit")
            self.kill()
        else:
            if status:
                text = f"{self.name} exited with status {status}; see {self.log}"
                self._violation("crash", text)

    @property
    def holds(self) -> bool:
        """Whether the client holds a lease that it has not begun to release."""
        self.histories[-1].load()
        return bool(self.histories[-1].held)

    @property
    def _has_recorded_closed(self) -> bool:
        return any(entry["event"] == "closed" for entry in self.histories[-1].load()[-1:])

    @property
    def waits_in_progress(self) -> list[Wait]:
        """The acquires of the current process that have not returned."""
        self.histories[-1].load()
        return waits([(self.name, self.histories[-1].asks.values())])

    @property
    def is_running(self) -> bool:
        """Whether the process exists, suspended or not."""
        return self._process is not None and self._process.poll() is None

    def check_running(self) -> None:
        """Raises CrashError, and records a violation, if the process exited unexpectedly."""
        if self._process is not None and not self.is_running:
            text = f"{self.name} exited unexpectedly with status {self._process.returncode}"
            self._violation("crash", f"{text}; see {self.log}")
            raise CrashError

    @property
    def entries(self) -> list[Entry]:
        """The entries of all histories, one history after another."""
        return [entry for history in self.histories for entry in history.all]

    def granted_since(self, moment: int) -> bool:
        """Returns whether the process was granted a lock and a permit in acquires that began after
        `moment`."""
        granted = set()
        for entry in reversed(self.histories[-1].load()):
            if entry["event"] == "granted" and entry["asked"] > moment:
                granted.add("permits" in entry)
            if len(granted) == 2 or entry["at"] < moment:
                break
        return len(granted) == 2

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
    """The clients of a run."""

    def __init__(
        self,
        urls: Sequence[Sequence[str]],
        settings: dict[str, Any],
        group: int,
        folder: Path,
        network: Network | None,
        kinds: dict[str, list[str]] | None = None,
    ) -> None:
        """Starts all clients. If `urls` has several lists of nodes, the clients are spread over
        them."""
        kinds = kinds or KINDS
        rust = str(build_rust()) if [RUST] in kinds.values() else RUST
        # Those that lock through a daemon do not elect leaders.
        candidates = [name for name, command in kinds.items() if command not in (GO, JAVA)]
        self._clients = []
        for number, (name, command) in enumerate(kinds.items()):
            words = [rust if word == RUST else word for word in command]
            if network is not None:
                words = [*network.command(number), *words]
            own = {
                "name": name,
                "kind": name.split()[1],
                "others": [other for other in candidates if other != name],
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
        """Checks until this time of time.monotonic() that all clients are running."""
        while (left := until - time.monotonic()) > 0:
            for client in self._clients:
                client.check_running()
            time.sleep(min(left, 0.05))

    def close(self) -> None:
        """Asks all clients to finish their waits and to close, and waits until they have."""
        for client in self._clients:
            client.end()
        deadline = time.monotonic() + END_TIMEOUT
        left = self._clients
        while left := [client for client in left if not client.has_closed(deadline)]:
            time.sleep(0.02)

    def end(self) -> None:
        """Waits until all processes have exited."""
        deadline = time.monotonic() + END_TIMEOUT
        for client in self._clients:
            client.wait(deadline)

    def kill(self) -> None:
        """Kills the processes that are still running."""
        for client in self._clients:
            if client.is_running:
                client.kill()

    @property
    def violations(self) -> list[Violation]:
        """The violations of all clients."""
        return [violation for client in self._clients for violation in client.violations]
