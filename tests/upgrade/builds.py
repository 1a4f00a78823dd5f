"""A build of quorlock in a checkout, and its clients."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from command_line import ROOT, CommandLine
from cross import holders

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Build:
    """The packages that `make native` puts in place in the checkout `root`."""

    name: str
    root: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which Python imports this build."""
        return {**os.environ, "PYTHONPATH": str(self.root / "bindings-python" / "python")}

    def check(self, file: str) -> None:
        """Checks that a process has imported this build, from a file of its package."""
        assert Path(file).is_relative_to(self.root / "bindings-python"), file

    def command_line(self, urls: Sequence[str]) -> CommandLine:
        """Returns the `quorlock` command of this build."""
        quorlock = CommandLine("pip", urls)
        quorlock.program = [sys.executable, "-m", "quorlock"]
        quorlock.environment["PYTHONPATH"] = self.environment["PYTHONPATH"]
        return quorlock


NEW = Build("new", ROOT)
OLD = Build("old", Path(os.environ.get("BEFORE") or ROOT).resolve())
"""The build in the directory BEFORE. Without BEFORE, this build: that tests only the tests."""


class CommandError(Exception):
    """A command of a holder has failed. The arguments are the error's code and text."""


class Holder:
    """A process that runs holder.py with a build. `options` are the options of its client."""

    def __init__(self, build: Build, urls: Sequence[str], **options: Any) -> None:
        self.name = build.name
        settings = [json.dumps(list(urls)), build.name, json.dumps(options)]
        command = [sys.executable, str(HERE / "holder.py"), *settings]
        self.process = holders.Holder(command, build.environment)
        build.check(self.ask("file"))

    def begin(self, command: str, **arguments: Any) -> None:
        """Starts a command whose result `end` returns."""
        self.process.send(command=command, arguments=arguments)

    def end(self) -> Any:
        """Returns the result of the command. Raises CommandError with the code of an error."""
        answer = self.process.receive()
        if "error" in answer:
            raise CommandError(answer["error"], answer["text"])
        return answer["ok"]

    def ask(self, command: str, **arguments: Any) -> Any:
        self.begin(command, **arguments)
        return self.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # It may still wait for a lock.
        self.process.signal(signal.SIGKILL)
        self.process.close()
