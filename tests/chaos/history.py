"""The record of a chaos run: histories, injected faults and violations."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from chaos.check import Entry, Lease, Violation, leases
from chaos.waits import Wait, waits


class History:
    """The history of one process. The process may still be writing it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self.entries: list[Entry] = []
        self.actions: list[Entry] = []
        """What the run did to the process, such as killing it. waits.py lists the events."""
        self.asks: dict[int, Entry] = {}
        """The entries of acquires that have not returned, by their numbers."""
        self.held: set[str] = set()
        """The tokens of the leases that the process has not begun to release, or detached."""

    def load(self) -> list[Entry]:
        """Reads the new entries and returns all entries. Ignores an incomplete last line."""
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
        elif entry["event"] == "release" or (entry["event"] == "detached" and entry["ok"]):
            self.held.remove(entry["token"])
        elif entry["event"] == "disconnected" or (entry["event"] == "handed" and not entry["left"]):
            self.held.discard(entry["token"])

    def add_action(self, event: str, at: int | None = None) -> None:
        """Records what the run does to the process, by default with the current time."""
        self.actions.append({"event": event, "at": time.monotonic_ns() if at is None else at})

    @property
    def all(self) -> list[Entry]:
        """The entries that the process wrote and the `actions`, ordered by time."""
        return sorted([*self.load(), *self.actions], key=lambda entry: entry["at"])


@dataclass
class InjectedFault:
    """A fault that was injected. Times are in nanoseconds of CLOCK_MONOTONIC."""

    kind: str
    target: str
    begins: int
    ends: int


@dataclass
class Run:
    """A chaos run and its results."""

    seed: int
    folder: Path
    began: int
    ended: int = 0
    calms: list[tuple[int, int]] = field(default_factory=list)
    """The periods without faults: start and end."""
    injected: list[InjectedFault] = field(default_factory=list)
    histories: list[tuple[str, list[Entry]]] = field(default_factory=list)
    """The name of each client, and the entries of all its processes."""
    register: list[Entry] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)

    def seconds(self, at: int) -> float:
        """Converts a time to seconds since the start of the run."""
        return (at - self.began) / 1e9

    @property
    def leases(self) -> list[Lease]:
        """The leases of all clients."""
        return leases(self.histories)

    @property
    def waits(self) -> list[Wait]:
        """The acquires of all clients."""
        return waits(self.histories)


def language(client: str) -> str:
    """Returns the language of the client with this name."""
    return client.split()[0]
