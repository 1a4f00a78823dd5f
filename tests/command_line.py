"""Runs the `quorlock` command as each package installs it. Used by the tests of all suites."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from waiting import TIMEOUT

ROOT = Path(__file__).resolve().parents[1]


def cargo_program() -> str:
    """Returns the path of the `quorlock` program that `make build` compiles."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = target / "quick" / "quorlock"
    assert path.exists(), "run `make build` first"
    return str(path)


def program(installation: str) -> list[str]:
    """Returns the command that starts `quorlock` as this installation provides it."""
    match installation:
        case "cargo":
            return [cargo_program()]
        case "pip":
            return [str(Path(sys.executable).parent / "quorlock")]
        case _:
            node = shutil.which("node")
            assert node, "node is not on the PATH"
            return [node, str(ROOT / "bindings-node" / "command-line.js")]


class CommandLine:
    """Runs the `quorlock` command of one installation, with the nodes' URLs in its environment."""

    def __init__(self, installation: str, urls: Sequence[str]) -> None:
        self.installation = installation
        self.program = program(installation)
        self.environment: dict[str, str] = {
            **{key: value for key, value in os.environ.items() if not key.startswith("QUORLOCK_")},
            "QUORLOCK_NODES": ",".join(urls),
            # Long timeouts, so that no lease is lost on a busy machine.
            "QUORLOCK_NODE_TIMEOUT": "500ms",
            "QUORLOCK_CONNECT_TIMEOUT": "10s",
        }

    def start(
        self, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Starts the command, with pipes for its standard streams."""
        return subprocess.Popen(
            [*self.program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**self.environment, **(environment or {})},
            text=True,
        )

    def run(
        self, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs the command until it ends, and returns its status and output."""
        process = self.start(*arguments, environment=environment)
        return finish(process)


def finish(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """Waits until the process ends, and returns its status and output. Kills it after a minute."""
    try:
        out, err = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def line(process: subprocess.Popen[str]) -> str:
    """Reads the next line that the process writes to stdout."""
    assert process.stdout
    text = process.stdout.readline()
    assert text, finish(process)
    return text.strip()


def parse_json(text: str) -> Any:
    """Parses output that must be a single line of JSON."""
    (only,) = text.splitlines()
    return json.loads(only)


def state(pid: int) -> str:
    """Returns the state of a process as a letter, on Linux: T if it is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def is_alive(pid: int) -> bool:
    """Returns whether the process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return state(pid) != "Z"
    except OSError:
        return Path("/proc").exists() is False
