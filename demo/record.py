"""The record of a demo run: its updates, errors and server events, and the checks on them.

Times are nanoseconds of CLOCK_MONOTONIC, which all processes of one machine share.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Entry = dict[str, Any]
"""An update (`asked`, `from`, `to`, `wrote`, with the lock also `valid_until` and `fence`), or an
error (`error`, `asked`, `at`)."""

Span = tuple[int, int]
"""The start and the end of a period."""

DOWN = ("killed", "frozen")
"""The events after which a server does not answer."""


@dataclass(frozen=True)
class ServerEvent:
    """What the demo did to a server."""

    at: int
    server: int
    """The number of the server, from 1."""
    what: str
    """`killed`, `frozen`, `restarted, empty` or `resumed`."""


@dataclass(frozen=True)
class Process:
    """A process and what it did."""

    name: str
    entries: list[Entry]
    failed: bool = False
    """Whether it ended with an error."""

    @property
    def updates(self) -> list[Entry]:
        return [entry for entry in self.entries if "error" not in entry]

    @property
    def errors(self) -> list[Entry]:
        return [entry for entry in self.entries if "error" in entry]


@dataclass(frozen=True)
class Record:
    """A run of the demo. It may have been interrupted."""

    locked: bool
    began: int
    ended: int
    servers: int
    """The number of servers."""
    events: list[ServerEvent]
    processes: list[Process]
    counter: int
    """The final value of the shared counter."""
    interrupted: bool = False

    @property
    def updates(self) -> list[Entry]:
        """The updates of all processes, ordered by their start."""
        found = (update for process in self.processes for update in process.updates)
        return sorted(found, key=lambda update: update["from"])

    @property
    def lost(self) -> int:
        """The number of updates that are missing from the counter."""
        return len(self.updates) - self.counter

    @property
    def fences_not_increased(self) -> int:
        """The number of updates whose fence is not larger than all earlier fences."""
        count, largest = 0, 0
        for update in self.updates:
            count += update["fence"] <= largest
            largest = max(largest, update["fence"])
        return count

    @property
    def late(self) -> int:
        """The number of updates that took longer than their lease."""
        return sum(update["to"] > update["valid_until"] for update in self.updates)

    @property
    def idle(self) -> list[str]:
        """The names of the processes without an update."""
        return [process.name for process in self.processes if not process.updates]

    @property
    def failed(self) -> list[str]:
        """The names of the processes that ended with an error."""
        return [process.name for process in self.processes if process.failed]

    @property
    def overlaps(self) -> int:
        """The number of updates that began while another was at work."""
        return len(overlapping(self.updates))

    def down(self, server: int) -> list[tuple[str, Span]]:
        """The periods in which a server did not answer: `killed` or `frozen`, and when."""
        spans: list[tuple[str, Span]] = []
        since: ServerEvent | None = None
        for event in self.events:
            if event.server != server:
                continue
            if since:
                spans.append((since.what, (since.at, event.at)))
            since = event if event.what in DOWN else None
        if since:
            spans.append((since.what, (since.at, self.ended)))
        return spans


def overlapping(updates: Iterable[Entry]) -> list[Span]:
    """The periods in which an update was at work that began during another. `updates` must be
    ordered by their start."""
    spans: list[Span] = []
    latest = 0
    for update in updates:
        if update["from"] < latest:
            spans.append((update["from"], min(latest, update["to"])))
        latest = max(latest, update["to"])
    return spans
