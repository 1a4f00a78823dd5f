"""Reads the memory of processes."""

from __future__ import annotations

import subprocess
from pathlib import Path


def resident(pid: int) -> int:
    """Returns the resident memory of a process in bytes."""
    command = ["ps", "-o", "rss=", "-p", str(pid)]
    return int(subprocess.check_output(command, text=True)) * 1024


def proportional(pid: int) -> int:
    """Returns the memory of a process in bytes. Pages that processes share are divided by their
    number, where the system tells it."""
    maps = Path(f"/proc/{pid}/smaps_rollup")
    if not maps.exists():
        return resident(pid)
    line = next(line for line in maps.read_text().splitlines() if line.startswith("Pss:"))
    return int(line.split()[1]) * 1024
