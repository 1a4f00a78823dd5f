"""Starts `quorlock serve`, and speaks its protocol. Used by the tests of all suites."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from command_line import CommandLine, finish
from fleet.resp import Argument, Reply, ServerReplyError, encode_command, read_reply
from waiting import TIMEOUT, wait_until


class Connection:
    """A connection to the daemon, which owns the leases that it acquires."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(TIMEOUT)
        self.socket.connect(str(path))
        self.reader = self.socket.makefile("rb")

    def send(self, *words: Argument) -> None:
        """Sends a request, and does not wait for its reply."""
        self.socket.sendall(encode_command(*words))

    def reply(self) -> Reply:
        """Reads the next reply. Raises ServerReplyError for an error."""
        return read_reply(self.reader)

    def ask(self, *words: Argument) -> Reply:
        self.send(*words)
        return self.reply()

    def lock(self, *words: Argument) -> tuple[str, int]:
        """Sends LOCK, and returns the id and the fence of the lease."""
        reply = self.ask("LOCK", *words)
        assert isinstance(reply, list)
        lease, fence, valid = reply[:3]
        assert isinstance(lease, str)
        assert isinstance(fence, int)
        assert isinstance(valid, int)
        assert valid > 0
        return lease, fence

    def error(self, *words: Argument) -> str:
        """Sends a request that must fail, and returns the error."""
        try:
            reply = self.ask(*words)
        except ServerReplyError as error:
            return str(error)
        raise AssertionError(reply)

    def status(self) -> dict[str, Any]:
        """Returns the status of the daemon."""
        reply = self.ask("STATUS")
        assert isinstance(reply, str)
        status: dict[str, Any] = json.loads(reply)
        return status

    def is_closed(self) -> bool:
        """Returns whether the daemon has closed the connection. Waits for that."""
        return self.reader.read() == b""

    def close(self) -> None:
        self.reader.close()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Daemon:
    """`quorlock serve`, which is killed at the end of the block if it still runs."""

    def __init__(
        self,
        quorlock: CommandLine,
        path: Path,
        *options: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.path = path
        arguments = ["serve", "--socket", str(path), *options]
        self.process = quorlock.start(*arguments, environment=environment)
        assert self.process.stdout
        ready = self.process.stdout.readline()
        assert ready == f"listening on {path}\n", finish(self.process)

    def connect(self) -> Connection:
        return Connection(self.path)

    def terminate(self) -> subprocess.CompletedProcess[str]:
        """Sends SIGTERM, and waits until the daemon has ended."""
        self.process.send_signal(signal.SIGTERM)
        return finish(self.process)

    def wait_until_waiting(self, count: int = 1) -> None:
        """Waits until so many of its clients wait in LOCK."""
        with self.connect() as connection:
            wait_until(lambda: connection.status()["waiting"] == count)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream
            stream.close()
        self.process.wait()
