"""The machine and the versions that the figures were measured with, and its limit of open files."""

from __future__ import annotations

import os
import platform
import re
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from servers import find_binary

from bench.settings import ROOT

_VERSIONS: dict[str, Sequence[str]] = {
    "Python": [sys.executable, "--version"],
    "Node.js": ["node", "--version"],
    "Rust": ["rustc", "--version"],
    "Go": ["go", "version"],
    "Java": ["java", "--version"],
}


def allow_files(count: int) -> None:
    """Lets this process, and programs that it starts from now on, open so many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count)), hard))


def describe() -> dict[str, object]:
    return {
        "processor": _processor(),
        "CPUs": os.cpu_count(),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "server": f"{Path(find_binary()).name} {_version([find_binary(), '--version'])}",
        "languages": {name: _version(command) for name, command in _VERSIONS.items()},
        "commit": _first_line(["git", "rev-parse", "--short", "HEAD"]),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _version(command: Sequence[str]) -> str:
    """Returns the version number in the output of the command."""
    found = re.search(r"\d+(\.\d+)+", _first_line(command))
    return found[0] if found else "unknown"


def _first_line(command: Sequence[str]) -> str:
    try:
        run = subprocess.run(
            command,
            check=True,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "none"
    return (run.stdout.splitlines() or ["unknown"])[0]
