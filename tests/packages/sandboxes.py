"""Sandboxes in which packages are installed as on a user's machine: without Rust, without a
compiler and without files of the checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

CRATES = {"quorlock-protocol": "core/protocol", "quorlock": "core", "quorlock-cli": "cli"}
"""The published crates and their directories, in the order of publishing."""


@dataclass(frozen=True)
class Sandbox:
    """A directory for installed packages. Only `programs` (name: path) are on the PATH in it."""

    directory: Path
    programs: dict[str, str]

    def run(
        self, *command: str | Path, stdin: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program, with more environment variables, and captures its output."""
        return subprocess.run(
            [self.programs.get(str(command[0]), command[0]), *command[1:]],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=self.directory,
            env={
                "PATH": str(self.directory / "bin"),
                "HOME": str(self.directory),
                **environment,
            },
            timeout=300,
            check=False,
        )

    def succeed(self, *command: str | Path, stdin: str = "", **environment: str) -> str:
        """Runs a program that must succeed, and returns its output."""
        done = self.run(*command, stdin=stdin, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def sandbox(directory: Path, **programs: str) -> Sandbox:
    """Creates an empty sandbox. Only these programs are on its PATH, under these names."""
    (directory / "bin").mkdir(parents=True)
    for name, path in programs.items():
        (directory / "bin" / name).symlink_to(path)
    return Sandbox(directory, {name: str(directory / "bin" / name) for name in programs})


def program(name: str) -> str:
    """Returns the path of a program. Fails if it is not installed."""
    path = shutil.which(name)
    assert path, f"{name} is needed"
    return str(Path(path).resolve())


def cargo_environment() -> dict[str, str]:
    """Returns the environment in which cargo compiles programs of users. They share a target
    directory, so that each dependency is compiled once."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "readme"
    return {**os.environ, "CARGO_TARGET_DIR": str(target), "CARGO_PROFILE_DEV_DEBUG": "0"}


def new_project(directory: Path, npm_registry: str, *options: str) -> Sandbox:
    """Creates an empty project and installs the npm package in it."""
    found = sandbox(directory, node=program("node"), npm=program("npm"), sh=program("sh"))
    (directory / "package.json").write_text(json.dumps({"name": "project", "private": True}))
    common = [f"--registry={npm_registry}", "--no-audit", "--no-fund", "--no-update-notifier"]
    found.succeed("npm", "install", "quorlock", *common, *options)
    return found


def quick_start(language: str, url: str) -> str:
    """Returns the first program on the package's registry page, with `url` as its only node."""
    part = {"python": "bindings-python", "js": "bindings-node"}[language]
    page = (ROOT / part / "README.md").read_text()
    text: str = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)[0]
    assert "redis://127.0.0.1:6379" in text
    return text.replace("redis://127.0.0.1:6379", url)
