"""Processes in other languages that run commands on a client."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from cargo import build_example

HERE = Path(__file__).resolve().parent


class Holder:
    """A process that reads commands from stdin, as lines of JSON, and answers each with a line."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, bufsize=1, env=env
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, **command: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(command) + "\n")

    def receive(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, f"{self._process.args!r} has ended"
        return json.loads(line)

    def ask(self, **command: Any) -> Any:
        self.send(**command)
        return self.receive()

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(60)

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: int) -> None:
        self._process.send_signal(number)


def node_holder(urls: Sequence[str]) -> Holder:
    return Holder(["node", str(HERE / "holder.js"), *urls])


def rust_holder(urls: Sequence[str]) -> Holder:
    return Holder([str(build_example("holder")), *urls])
