"""The `quorlock` command as each package installs it, for the tests."""

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

INSTALLATIONS = ["cargo", "pip", "npm"]


def cargo_program() -> str:
    """The program of its own, as `make build` compiles it."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = target / "quick" / "quorlock"
    assert path.exists(), "make build first"
    return str(path)


def program(installation: str) -> list[str]:
    """The words that a command line begins with."""
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
    """The command, with these nodes in its environment."""

    def __init__(self, installation: str, urls: Sequence[str]) -> None:
        self.installation = installation
        self.program = program(installation)
        self.environment: dict[str, str] = {
            **{key: value for key, value in os.environ.items() if not key.startswith("QUORLOCK_")},
            "QUORLOCK_NODES": ",".join(urls),
            # A machine that is busy is no reason to lose a lease.
            "QUORLOCK_NODE_TIMEOUT": "500ms",
            "QUORLOCK_CONNECT_TIMEOUT": "10s",
        }

    def start(
        self, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Starts it, with pipes for all that it reads and writes."""
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
        """Runs it to its end."""
        process = self.start(*arguments, environment=environment)
        return finish(process)


def finish(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """Waits for the end."""
    try:
        out, err = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def line(process: subprocess.Popen[str]) -> str:
    """The next line that it writes."""
    assert process.stdout
    text = process.stdout.readline()
    assert text, finish(process)
    return text.strip()


def told(text: str) -> Any:
    """What a single line of JSON says."""
    (only,) = text.splitlines()
    return json.loads(only)


def is_alive(pid: int) -> bool:
    """Whether the process is there, and is no zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return Path("/proc").exists() is False
