"""How long tests took, as the suites logged it, and how long whole runs took the last time."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

SLOWEST = 10


def python_tests(junit: Path) -> list[tuple[str, float]]:
    """Returns the name and the seconds of each Python test."""
    if not junit.exists():
        return []
    cases = ElementTree.parse(junit).iter("testcase")
    return [
        (f"{case.get('classname')}.{case.get('name')}", float(case.get("time") or 0))
        for case in cases
    ]


def node_tests(log: Path) -> list[tuple[str, float]]:
    """Returns the name and the seconds of each Node.js test. Older versions of Node.js log in the
    TAP format, newer ones in one of their own."""
    text = log.read_text(errors="replace") if log.exists() else ""
    found = re.findall(r"^ok \d+ - (.+)\n\s+---\n\s+duration_ms: ([\d.]+)", text, re.MULTILINE)
    found += re.findall(r"^\s*\u2714 (.+) \(([\d.]+)ms\)", text, re.MULTILINE)
    return [(f"node: {name}", float(milliseconds) / 1000) for name, milliseconds in found]


def directories(tests: list[tuple[str, float]]) -> dict[str, tuple[float, int]]:
    """Returns the total seconds and the number of the Python tests in each directory."""
    found: dict[str, tuple[float, int]] = {}
    for name, spent in tests:
        directory = name.split(".")[1]
        seconds, number = found.get(directory, (0.0, 0))
        found[directory] = seconds + spent, number + 1
    return dict(sorted(found.items(), key=lambda item: -item[1][0]))


def slowest(tests: list[tuple[str, float]]) -> list[str]:
    """Returns a line for each of the slowest tests."""
    ordered = sorted(tests, key=lambda test: -test[1])[:SLOWEST]
    return [f"{seconds:>8.1f} s  {name[:100]}" for name, seconds in ordered]


def percent(log: Path) -> str:
    """Returns how much of a suite is done, if its log tells it, as pytest's does."""
    found = re.findall(r"\[ *(\d+)%\]", log.read_text(errors="replace")) if log.exists() else []
    return f" {found[-1]} %" if found else ""


class LastRun:
    """How long the last whole run took on this machine, kept in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.seconds: float | None = json.loads(file.read_text()) if file.exists() else None

    def left(self, passed: float) -> str:
        """Returns how long a run will still take that began `passed` seconds ago."""
        if self.seconds is None or passed > self.seconds:
            return ""
        return f"; about {(self.seconds - passed) / 60:.0f} min left"

    def save(self, seconds: float) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(seconds))
