"""Installs other lock libraries (peers) with their package managers, under .cache/interop.

Versions are pinned. An installation is reused until a pin or a program changes. bench/peers also
uses this module, with its own peers and its own directory.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".cache" / "interop"

INSTALL_TIMEOUT = 600.0
"""The time limit of one installation step, in seconds."""


class NotInstalledError(Exception):
    """A library or server cannot be installed on this machine. The message gives the reason."""


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Locks the file during the block. The system releases the lock if the process ends."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Ecosystem:
    """The commands that install and run the lock libraries (peers) of one language."""

    directory: str
    """The name of the directory with the pins in `home`, and of the installation in `cache`."""
    inputs: Sequence[str]
    """The files that the installation depends on. They are copied to the cache for the
    installers."""
    steps: Sequence[Sequence[str | Path]]
    """The installation commands. They run in `directory` in the cache."""
    program: Sequence[str | Path]
    """The command that runs a peer. Its name and the URLs of the nodes are appended."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables for `steps` and `program`, in addition to those of this process."""
    home: Path = HERE
    cache: Path = CACHE

    def install(self) -> None:
        """Installs the libraries unless they are installed. Raises NotInstalledError if that fails.

        Tests that run in parallel wait until the first of them has installed the libraries.
        """
        target = self.cache / self.directory
        with locked(target / "lock"):
            self._install(target)

    def _install(self, target: Path) -> None:
        stamp = target / "stamp"
        wanted = hashlib.sha256(repr(self).encode())
        for name in self.inputs:
            wanted.update((self.home / self.directory / name).read_bytes())
        if stamp.exists() and stamp.read_text() == wanted.hexdigest():
            return
        stamp.unlink(missing_ok=True)
        for name in self.inputs:
            copy = target / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.home / self.directory / name, copy)
        for step in self.steps:
            self._run(step, target)
        stamp.write_text(wanted.hexdigest())

    def _run(self, step: Sequence[str | Path], target: Path) -> None:
        try:
            subprocess.run(
                step,
                cwd=target,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=INSTALL_TIMEOUT,
                check=True,
            )
        except subprocess.CalledProcessError as error:
            lines = error.stdout.strip().splitlines() or [f"exited with {error.returncode}"]
            # Prefer a line with an error: the last line may be the path of a log.
            reason = next((line for line in lines if "error" in line.lower()), lines[-1])
            raise NotInstalledError(f"{Path(step[0]).name}: {reason.strip()}") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotInstalledError(str(error)) from error


_VENV = CACHE / "python" / "venv"

PYTHON = Ecosystem(
    directory="python",
    inputs=["requirements.txt"],
    steps=[
        [sys.executable, "-m", "venv", "--clear", _VENV],
        [_VENV / "bin" / "pip", "install", "--no-deps", "--requirement=requirements.txt"],
    ],
    program=[_VENV / "bin" / "python", HERE / "python" / "peer.py"],
    environment={
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_QUIET": "1",
        "PIP_RETRIES": "1",
    },
)


def node(home: Path, cache: Path, program: Path) -> Ecosystem:
    """Returns an ecosystem of npm packages. `program` finds the packages through NODE_PATH."""
    return Ecosystem(
        directory="node",
        inputs=["package.json", "package-lock.json"],
        steps=[["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]],
        program=["node", program],
        environment={
            "NODE_PATH": str(cache / "node" / "node_modules"),
            "npm_config_fetch_retries": "1",
            "npm_config_loglevel": "error",
        },
        home=home,
        cache=cache,
    )


NODE = node(HERE, CACHE, HERE / "node" / "peer.cjs")

RUST = Ecosystem(
    directory="rust",
    inputs=["Cargo.toml", "Cargo.lock", "src/main.rs"],
    steps=[["cargo", "build", "--quiet", "--locked", "--target-dir=target"]],
    program=[CACHE / "rust" / "target" / "debug" / "peer"],
    environment={"CARGO_NET_RETRY": "1"},
)

GO = Ecosystem(
    directory="go",
    inputs=["go.mod", "go.sum", "main.go"],
    steps=[["go", "build", "-o", "peer", "."]],
    program=[CACHE / "go" / "peer"],
    # Use the installed Go toolchain; do not download another one.
    environment={"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"},
)
