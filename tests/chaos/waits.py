"""What became of all waits: pure functions from histories, as in check.py.

A history has, beside what the process wrote (client.py), what was done to it: `stopped`,
`continued` and `killed`, and `over` when it was asked to end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from chaos.check import Entry, Violation


@dataclass
class Wait:
    """One acquire, from its call on. Times in nanoseconds."""

    client: str
    resources: tuple[str, ...]
    asked: int
    length: int | None
    """For how long it may wait; `None` for ever."""
    cancelled: int | None = None
    """When it was about to be cancelled."""
    ended: int | None = None
    """When it had returned, or its process was killed."""
    outcome: str | None = None
    """`granted`, `cancelled`, `killed`, or the code of an error."""
    last: bool = False
    """It was still under way when the process was asked to end, with all being well."""
    stops: list[tuple[int, int]] = field(default_factory=list)
    """When its process stood still meanwhile."""

    def ran(self, since: int, until: int) -> int:
        """For how long its process has been running between these moments."""
        stopped = (min(until, end) - max(since, begin) for begin, end in self.stops)
        return until - since - sum(max(0, each) for each in stopped)

    def __str__(self) -> str:
        length = "for ever" if self.length is None else f"up to {self.length / 1e9:g} s"
        return f"{self.client}'s wait for {' and '.join(self.resources)} ({length})"


def waits(histories: Iterable[tuple[str, Iterable[Entry]]]) -> list[Wait]:
    """All waits of all clients, in the order in which they began."""
    found = [wait for client, entries in histories for wait in _of_client(client, entries)]
    return sorted(found, key=lambda wait: wait.asked)


def _of_client(client: str, entries: Iterable[Entry]) -> Iterator[Wait]:
    under_way: dict[int, Wait] = {}
    stopped = 0
    for entry in entries:
        match entry["event"]:
            case "ask":
                length = None if entry["wait"] is None else entry["wait"] * 1_000_000
                wait = Wait(client, tuple(entry["resources"]), entry["at"], length)
                under_way[entry["ask"]] = wait
                yield wait
            case "cancel":
                under_way[entry["ask"]].cancelled = entry["at"]
            case "granted" | "cancelled" | "error" as event:
                wait = under_way.pop(entry["ask"])
                wait.ended, wait.outcome = entry["at"], entry.get("code", event)
            case "killed":
                for wait in under_way.values():
                    wait.ended, wait.outcome = entry["at"], "killed"
                under_way.clear()
            case "stopped":
                stopped = entry["at"]
            case "continued":
                for wait in under_way.values():
                    wait.stops.append((stopped, entry["at"]))
            case "over":
                for wait in under_way.values():
                    wait.last = True


def stuck(of: Iterable[Wait], slack: int) -> list[Violation]:
    """Every wait ends in time, not counting how long its process stood still.

    That is at its deadline, if it has one; soon after it was cancelled, if it was; and in any case
    before its process. One that is for ever, and is under way when all is well for good, is
    granted. `slack` is what a wait may take longer, in nanoseconds.
    """
    found = []
    for wait in of:
        if wait.ended is None:
            found.append(Violation("stuck", wait.asked, f"{wait} has never ended"))
            continue
        limits = []
        if wait.length is not None:
            limits.append((wait.asked, wait.length, "after it began"))
        if wait.cancelled is not None:
            limits.append((wait.cancelled, 0, "after it was cancelled"))
        for since, length, what in limits:
            ran = wait.ran(since, wait.ended)
            if ran > length + slack:
                text = f"{wait} ended ({wait.outcome}) {ran / 1e9:.3f} s {what}"
                found.append(Violation("stuck", wait.ended, text))
        good = ("granted", "cancelled", "killed")
        if wait.last and wait.length is None and wait.outcome not in good:
            text = f"{wait} ended in {wait.outcome}, though all was well"
            found.append(Violation("not granted", wait.ended, text))
    return found


def most_in_one_line(of: Iterable[Wait]) -> int:
    """How many waits of one client for one resource there were at once, at most."""
    steps = chain.from_iterable(
        ((wait.asked, 1, wait, resource), (wait.ended, -1, wait, resource))
        for wait in of
        if wait.ended is not None
        for resource in wait.resources
    )
    now: Counter[tuple[str, str]] = Counter()
    most = 0
    for _, step, wait, resource in sorted(steps, key=lambda step: step[:2]):
        now[wait.client, resource] += step
        most = max(most, now[wait.client, resource])
    return most
