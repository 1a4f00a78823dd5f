"""What is written down in a chaos run."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from chaos.check import Entry, Lease, Violation, leases
from chaos.waits import Wait, waits


class History:
    """The history of one process: what it has written so far."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self.entries: list[Entry] = []
        self.deeds: list[Entry] = []
        """What was done to the process; see waits.py."""
        self.asks: dict[int, Entry] = {}
        """Those of the entries that ask for a lock, and have no answer so far."""
        self.held: set[str] = set()
        """The tokens of what was granted, and is not released so far."""

    def load(self) -> list[Entry]:
        """All complete lines; a process that was killed may have left half a line."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read)
                lines, _, _ = file.read().rpartition(b"\n")
            if lines:
                self._read += len(lines) + 1
                for line in lines.split(b"\n"):
                    self._add(json.loads(line))
        return self.entries

    def _add(self, entry: Entry) -> None:
        self.entries.append(entry)
        if entry["event"] == "ask":
            self.asks[entry["ask"]] = entry
        elif entry["event"] in ("granted", "cancelled", "error"):
            del self.asks[entry["ask"]]
        if entry["event"] == "granted":
            self.held.add(entry["token"])
        elif entry["event"] == "release":
            self.held.remove(entry["token"])

    def did(self, event: str) -> None:
        """Something is done to the process now."""
        self.deeds.append({"event": event, "at": time.monotonic_ns()})

    @property
    def all(self) -> list[Entry]:
        """What it wrote, and what was done to it, in order of time."""
        return sorted([*self.load(), *self.deeds], key=lambda entry: entry["at"])


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

    @property
    def waits(self) -> list[Wait]:
        """Of all clients."""
        return waits(self.histories)


def language(client: str) -> str:
    """In which language the client of this name is written."""
    return client.split()[0]
