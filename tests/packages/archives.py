"""The archive of the `quorlock` command for Linux x64."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import command
import npm
from command_line import cargo_program
from packages.sandboxes import ROOT
from packages.tools import CACHE

PLATFORM = "linux-x64-musl"


def is_published() -> bool:
    """Whether the tests compile the command as it is published, as in `make verify`."""
    return os.environ.get("TOOLS") == "full"


def build(out: Path) -> Path:
    """Builds the archive, and returns its path. Unless the command is compiled as it is published,
    the archive has the program of `make build`."""
    script = [sys.executable, str(ROOT / "release" / "command.py"), PLATFORM, str(out)]
    if is_published():
        subprocess.run(script, env={**os.environ, "PATH": compilers()}, check=True)
    else:
        subprocess.run([*script, "--program", cargo_program()], check=True)
    return out / command.archive_name(PLATFORM)


def compilers() -> str:
    """Installs the tools that compile a published program. Returns the PATH with them."""
    programs = CACHE / "release" / "bin"
    if not (programs / "cargo-zigbuild").exists():
        subprocess.run([sys.executable, "-m", "venv", programs.parent], check=True)
        tools = ROOT / "release" / "requirements.txt"
        install: list[str | Path] = [programs / "pip", "install", "--quiet", "--requirement", tools]
        subprocess.run(install, check=True)
    target = npm.platforms()[PLATFORM]["target"]
    subprocess.run(["rustup", "target", "add", target], check=True)
    return f"{programs}:{os.environ['PATH']}"


def files(archive: Path) -> dict[str, bytes]:
    """Returns the files of the archive, by their paths in its only directory."""
    found = {}
    with tarfile.open(archive) as packed:
        for member in packed:
            top, _, name = member.name.partition("/")
            assert top == command.stem(PLATFORM)
            file = packed.extractfile(member)
            assert file
            found[name] = file.read()
    return found
