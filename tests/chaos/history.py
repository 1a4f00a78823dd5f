"""What is written down in a chaos run."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from chaos.check import Entry, Lease, Violation, leases


class History:
    """The history of one process: what it has written so far."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self.entries: list[Entry] = []

    def load(self) -> list[Entry]:
        """All complete lines; a process that was killed may have left half a line."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read)
                lines, _, _ = file.read().rpartition(b"\n")
            if lines:
                self._read += len(lines) + 1
                self.entries += [json.loads(line) for line in lines.split(b"\n")]
        return self.entries


@dataclass
class Stroke:
    """A fault as it was inflicted. Times, as everywhere: nanoseconds of CLOCK_MONOTONIC."""

    kind: str
    target: str
    begins: int
    ends: int


@dataclass
class Run:
    """A whole run."""

    seed: int
    folder: Path
    began: int
    ended: int = 0
    calms: list[tuple[int, int]] = field(default_factory=list)
    """From when to when all was well."""
    strokes: list[Stroke] = field(default_factory=list)
    histories: list[tuple[str, list[Entry]]] = field(default_factory=list)
    """Of each client, by its name: what all its processes wrote."""
    register: list[Entry] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)

    def seconds(self, at: int) -> float:
        """A moment, as it is shown to people."""
        return (at - self.began) / 1e9

    @property
    def leases(self) -> list[Lease]:
        """Of all clients."""
        return leases(self.histories)


def language(client: str) -> str:
    """In which language the client of this name is written."""
    return client.split()[0]
