"""The checker of waits: pure functions from histories to violations, like check.py.

Besides the entries that the process writes (client.py), a history records what the run did to the
process: `stopped`, `continued`, `killed`, and `ending` when the run asked it to end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from chaos.check import Entry, Violation


@dataclass
class Wait:
    """One acquire, from its call until it returns. Times are in nanoseconds."""

    client: str
    resources: tuple[str, ...]
    asked: int
    length: int | None
    """The `wait` option; None for no limit."""
    cancelled: int | None = None
    """The time just before the wait was cancelled."""
    ended: int | None = None
    """The time just after the acquire returned, or the time at which its process was killed."""
    outcome: str | None = None
    """`granted`, `cancelled`, `killed`, or the code of an error."""
    last: bool = False
    """Whether the acquire was in progress when the run, after all faults, asked the process to
    end."""
    stops: list[tuple[int, int]] = field(default_factory=list)
    """The periods in which the process was stopped during the wait: start and end."""

    def ran(self, since: int, until: int) -> int:
        """Returns the time from `since` to `until` without the periods in which the process was
        stopped."""
        stopped = (min(until, end) - max(since, begin) for begin, end in self.stops)
        return until - since - sum(max(0, each) for each in stopped)

    def __str__(self) -> str:
        length = "no limit" if self.length is None else f"up to {self.length / 1e9:g} s"
        return f"{self.client}'s wait for {' and '.join(self.resources)} ({length})"


def waits(histories: Iterable[tuple[str, Iterable[Entry]]]) -> list[Wait]:
    """Returns all acquires of all clients, in the order in which they began."""
    found = [wait for client, entries in histories for wait in _of_client(client, entries)]
    return sorted(found, key=lambda wait: wait.asked)


def _of_client(client: str, entries: Iterable[Entry]) -> Iterator[Wait]:
    in_progress: dict[int, Wait] = {}
    stopped = 0
    for entry in entries:
        match entry["event"]:
            case "ask":
                length = None if entry["wait"] is None else entry["wait"] * 1_000_000
                wait = Wait(client, tuple(entry["resources"]), entry["at"], length)
                in_progress[entry["ask"]] = wait
                yield wait
            case "cancel":
                in_progress[entry["ask"]].cancelled = entry["at"]
            case "granted" | "cancelled" | "error" as event:
                wait = in_progress.pop(entry["ask"])
                wait.ended, wait.outcome = entry["at"], entry.get("code", event)
            case "killed":
                for wait in in_progress.values():
                    wait.ended, wait.outcome = entry["at"], "killed"
                in_progress.clear()
            case "stopped":
                stopped = entry["at"]
            case "continued":
                for wait in in_progress.values():
                    wait.stops.append((stopped, entry["at"]))
            case "ending":
                for wait in in_progress.values():
                    wait.last = True


def stuck(of: Iterable[Wait], slack: int) -> list[Violation]:
    """Returns the waits that did not end in time.

    A wait must end at its deadline, soon after its cancellation, and in any case before its process
    exits. Time in which the process is stopped does not count. A wait without a limit that is in
    progress at the end of the run, when there are no more faults, must be granted. `slack` is the
    allowed delay in nanoseconds.
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
        # An adoption can come too late.
        good = ("granted", "cancelled", "killed", "LEASE_LOST")
        if wait.last and wait.length is None and wait.outcome not in good:
            text = f"{wait} ended with {wait.outcome}, although there was no fault"
            found.append(Violation("not granted", wait.ended, text))
    return found


def longest_local_queue(of: Iterable[Wait]) -> int:
    """Returns the largest number of simultaneous waits of one client for one resource."""
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
