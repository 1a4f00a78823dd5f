"""Contenders: the programs that are measured. They run cycles on request; see `README.md`."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from parameters import LIMIT

Kind = Literal["quorlock", "floor", "peer"]


@dataclass(frozen=True)
class Contender:
    """A library or the floor, in one form (`sync` or `async`)."""

    name: str
    kind: Kind
    language: str
    form: str
    command: Sequence[str]
    """The command of the program. The URLs of the nodes are appended."""
    environment: Mapping[str, str] = field(default_factory=dict)
    needs_one_node: bool = False
    """Whether it supports only a single node."""
    concurrency: bool = True
    """Whether it can run several cycles concurrently."""


class FailedError(Exception):
    """A contender hangs, has exited, or answered with an error."""


class Process:
    """A program that answers each line of JSON on stdin with a line of JSON on stdout."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._complaints = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self.failure = ""
        """Why the process cannot answer any more; empty if it can."""
        self._told = 0.0
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            bufsize=1,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, request: Mapping[str, object]) -> None:
        assert self._process.stdin
        with suppress(BrokenPipeError):  # `receive` reports that the process has exited
            self._process.stdin.write(json.dumps(request) + "\n")

    def receive(self, limit: float = LIMIT) -> dict[str, Any]:
        """Returns the next answer. Kills the process after `limit` seconds. Raises FailedError."""
        assert self._process.stdout
        if self.failure:
            raise FailedError(self.failure)
        timer = threading.Timer(limit, self._hangs)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        if not line:
            self.failure = self.failure or f"ends: {self._last_words()}"
            raise FailedError(self.failure)
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise FailedError(f"fails: {answer['error']}")
        return answer

    def ask(self, request: Mapping[str, object], limit: float = LIMIT) -> dict[str, Any]:
        self.send(request)
        return self.receive(limit)

    def hang_up(self) -> None:
        """Closes stdin, which tells the process to exit."""
        assert self._process.stdin
        if not self._process.stdin.closed:
            self._told = time.monotonic()
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def close(self, patience: float = 2.0) -> None:
        """Ends the process. Kills it if it is still running `patience` seconds after `hang_up`."""
        self.hang_up()
        try:
            self._process.wait(max(0.0, self._told + patience - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout
        self._process.stdout.close()
        self._complaints.close()

    def _hangs(self) -> None:
        self.failure = "hangs"
        self._process.kill()

    def _last_words(self) -> str:
        self._complaints.seek(0)
        lines = self._complaints.read().strip().splitlines()
        return lines[-1] if lines else "without a word"
