"""Places where packages are installed as users install them: without Rust, without a compiler, and
without anything of the checkout."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Place:
    """A directory, and programs that are all that can be run there."""

    directory: Path
    programs: dict[str, str]

    def run(self, *command: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Runs a program with its output caught."""
        return subprocess.run(
            [self.programs.get(str(command[0]), command[0]), *command[1:]],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=self.directory,
            env={"PATH": str(self.directory / "bin"), "HOME": str(self.directory)},
            timeout=300,
            check=False,
        )

    def succeed(self, *command: str | Path, stdin: str = "") -> str:
        """Runs a program that must succeed, and returns its output."""
        done = self.run(*command, stdin=stdin)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def place(directory: Path, **programs: str) -> Place:
    """An empty place; the programs are on its PATH by these names, and nothing else is."""
    (directory / "bin").mkdir(parents=True)
    for name, path in programs.items():
        (directory / "bin" / name).symlink_to(path)
    return Place(directory, {name: str(directory / "bin" / name) for name in programs})


def program(name: str) -> str:
    """Where a program is."""
    path = shutil.which(name)
    assert path, f"{name} is needed"
    return str(Path(path).resolve())


def new_project(directory: Path, npm_registry: str, *options: str) -> Place:
    """An empty project in which the npm package is installed."""
    found = place(directory, node=program("node"), npm=program("npm"), sh=program("sh"))
    (directory / "package.json").write_text(json.dumps({"name": "project", "private": True}))
    common = [f"--registry={npm_registry}", "--no-audit", "--no-fund", "--no-update-notifier"]
    found.succeed("npm", "install", "quorlock", *common, *options)
    return found


def quick_start(language: str, url: str) -> str:
    """The first program on the page that the registry shows, with this node."""
    part = {"python": "bindings-python", "js": "bindings-node"}[language]
    page = (ROOT / part / "README.md").read_text()
    text: str = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)[0]
    assert "redis://127.0.0.1:6379" in text
    return text.replace("redis://127.0.0.1:6379", url)
