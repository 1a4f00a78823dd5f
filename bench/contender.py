"""Contenders: the programs that are measured. They run cycles on request; see `README.md`."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bench.settings import LIMIT, PATIENCE

Kind = Literal["quorlock", "floor", "peer"]
Language = Literal["Python", "Node.js", "Rust", "Go", "Java"]
Form = Literal["sync", "async"]
"""Whether a cycle blocks its thread (`sync`). Concurrent cycles then run in threads, otherwise in
tasks."""


@dataclass(frozen=True)
class Contender:
    """A library or the floor, in one form."""

    name: str
    kind: Kind
    language: Language
    form: Form
    command: Sequence[str]
    """The command of the program. The URLs of the nodes are appended."""
    environment: Mapping[str, str] = field(default_factory=dict)
    needs_one_node: bool = False
    """Whether it supports only a single node."""


class FailedError(Exception):
    """A contender hangs, has exited, or answered with an error."""


class Process:
    """A program that answers each line of JSON on stdin with a line of JSON on stdout."""

    def __init__(self, command: Sequence[str | Path], environment: Mapping[str, str]) -> None:
        self._stderr = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self.failure = ""
        """Why the process cannot answer any more; empty if it can."""
        self._hung_up = 0.0
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
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
            self.failure = self.failure or f"ends: {self._last_line()}"
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
            self._hung_up = time.monotonic()
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def close(self, patience: float = 2.0) -> None:
        """Ends the process. Kills it if it is still running `patience` seconds after `hang_up`."""
        self.hang_up()
        try:
            self._process.wait(max(0.0, self._hung_up + patience - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout
        self._process.stdout.close()
        self._stderr.close()

    def kill(self) -> None:
        self._process.kill()
        self.close()

    def _hangs(self) -> None:
        self.failure = "hangs"
        self._process.kill()

    def _last_line(self) -> str:
        self._stderr.seek(0)
        lines = self._stderr.read().strip().splitlines()
        return lines[-1] if lines else "without a message"


def start_all(
    stack: ExitStack,
    commands: Sequence[Sequence[str | Path]],
    environment: Mapping[str, str],
    patience: float = 2.0,
) -> list[Process]:
    """Starts processes that are ended when `stack` is closed."""
    processes: list[Process] = []

    def close() -> None:
        for process in processes:
            process.hang_up()  # first tell all of them to exit, then wait for each
        for process in processes:
            process.close(patience)

    stack.callback(close)
    processes += (Process(command, environment) for command in commands)
    return processes


def ask_all(
    processes: Sequence[Process], request: Mapping[str, object], limit: float = PATIENCE
) -> list[dict[str, Any]]:
    for process in processes:
        process.send(request)
    return [process.receive(limit) for process in processes]
