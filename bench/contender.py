"""What is measured: a program that runs cycles when it is asked to; `README.md` says how."""

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
    """A library, or the floor, in one form."""

    name: str
    kind: Kind
    language: str
    form: str
    command: Sequence[str]
    """To which the nodes' URLs are added."""
    environment: Mapping[str, str] = field(default_factory=dict)
    needs_one_node: bool = False
    """It knows a single node only."""
    concurrency: bool = True
    """Whether it can run cycles at once."""


class FailedError(Exception):
    """A contender hangs, has ended, or answered with an error."""


class Process:
    """A program that answers each line of JSON with one."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._complaints = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self.failure = ""
        """Why there is nobody any more who could answer."""
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
        with suppress(BrokenPipeError):  # that it has ended is seen when the answer is read
            self._process.stdin.write(json.dumps(request) + "\n")

    def receive(self, limit: float = LIMIT) -> dict[str, Any]:
        """The next answer. What takes longer than `limit` is killed. Raises FailedError."""
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
        """Tells it that nothing will be asked any more."""
        assert self._process.stdin
        if not self._process.stdin.closed:
            self._told = time.monotonic()
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def close(self, patience: float = 2.0) -> None:
        """Ends it; kills it if it has not ended so many seconds after it was told to."""
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
