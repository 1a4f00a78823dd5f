"""A build of quorlock in a checkout, and its clients."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from command_line import ROOT, CommandLine

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Build:
    """What `make build` has built in the checkout `root`."""

    name: str
    root: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which Python imports this build."""
        return {**os.environ, "PYTHONPATH": str(self.root / "bindings-python" / "python")}

    def command_line(self, urls: Sequence[str]) -> CommandLine:
        """Returns the `quorlock` command of this build."""
        quorlock = CommandLine("pip", urls)
        quorlock.program = [sys.executable, "-m", "quorlock"]
        quorlock.environment["PYTHONPATH"] = self.environment["PYTHONPATH"]
        return quorlock


NEW = Build("new", ROOT)
OLD = Build("old", Path(os.environ.get("BEFORE") or ROOT).resolve())
"""The build in the directory BEFORE. If that is not set, this build, so that the tests themselves
are tested."""


class FailedError(Exception):
    """The error of a command, by its code."""


class Holder:
    """A process with a client of a build, which has these options."""

    def __init__(self, build: Build, urls: Sequence[str], **options: Any) -> None:
        self.name = build.name
        settings = [json.dumps(list(urls)), build.name, json.dumps(options)]
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "holder.py"), *settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=build.environment,
        )
        assert self.ask("file").startswith(str(build.root))

    def begin(self, command: str, **arguments: Any) -> None:
        """Starts a command whose result `end` returns."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps([command, arguments]) + "\n")

    def end(self) -> Any:
        """Returns the result of the command. Raises FailedError with the code of an error."""
        assert self.process.stdout
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise FailedError(answer["error"], answer["text"])
        return answer["ok"]

    def ask(self, command: str, **arguments: Any) -> Any:
        self.begin(command, **arguments)
        return self.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()
