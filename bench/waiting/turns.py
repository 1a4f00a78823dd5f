"""Evaluates the times of many clients of one lock. Pure functions, tested without a server.

Times are nanoseconds of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

FROM_SCRIPTS = frozenset(
    name
    for line in (
        "get getrange set del exists ttl pttl pexpire pexpireat time scan lpush",
        "zadd zcard zcount zrem zremrangebyscore zrange zrangebyscore zrank zrevrank zscore",
        "publish",
    )
    for name in line.split()
)
"""The commands that scripts of the libraries call. INFO counts them like commands of clients, so
they are excluded, unless the library also sends them itself (`sends`)."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a client: acquire, hold, release."""

    client: int
    called: int
    acquired: int
    releasing: int
    released: int


@dataclass(frozen=True, slots=True)
class HandOff:
    """The time from the return of a release to the return of the next acquire."""

    micros: float
    """Negative if the next acquire returned before the release did: the lock is free as soon as the
    nodes have executed the release, but the release waits for the answers of a majority."""
    same: bool
    """Whether the same client acquired the lock again, before the others."""


def hand_offs(turns: Iterable[Turn], until: int) -> list[HandOff]:
    """Pairs each release with the next acquire of any client. Ignores acquires after `until`.

    From then on clients stop, and fewer of them wait.
    """
    ordered = sorted(turns, key=lambda turn: turn.acquired)
    return [
        HandOff((later.acquired - earlier.released) / 1000, earlier.client == later.client)
        for earlier, later in pairwise(ordered)
        if later.acquired <= until
    ]


def overlaps(turns: Iterable[Turn]) -> int:
    """Returns how many turns began before an earlier holder began to release. Must be 0."""
    count = 0
    last = 0
    for turn in sorted(turns, key=lambda turn: turn.acquired):
        count += turn.acquired < last
        last = max(last, turn.releasing)
    return count


@dataclass(frozen=True, slots=True)
class Summary:
    """The quartiles and the 99th percentile of values."""

    median: float
    low: float
    high: float
    p99: float


def summary(values: Sequence[float]) -> Summary | None:
    """Returns the summary of the values; None if there are fewer than two."""
    if len(values) < 2:
        return None
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    p99 = statistics.quantiles(values, n=100, method="inclusive")[98]
    return Summary(median, low, high, p99)


@dataclass(frozen=True, slots=True)
class Fairness:
    """How equally clients that contend for one lock were served."""

    luckiest: int
    """The number of turns of the client with the most turns."""
    unluckiest: int
    longest: float
    """The longest wait, in seconds."""
    average: float

    @property
    def turns_ratio(self) -> float:
        return self.luckiest / self.unluckiest if self.unluckiest else float("inf")

    @property
    def wait_ratio(self) -> float:
        return self.longest / self.average if self.average else 1.0


def fairness(
    turns: Collection[Turn], clients: int, until: int, unfinished: Iterable[tuple[int, int]] = ()
) -> Fairness:
    """Counts the turns until `until`, and all waits with their full length, also beyond `until`.

    `unfinished` are the start and the end of waits that were given up.
    """
    counts = dict.fromkeys(range(clients), 0)
    for turn in turns:
        if turn.acquired <= until:
            counts[turn.client] += 1
    waits = [turn.acquired - turn.called for turn in turns]
    waits += [end - begin for begin, end in unfinished]
    seconds = [wait / 1e9 for wait in waits] or [0.0]
    return Fairness(
        max(counts.values()), min(counts.values()), max(seconds), statistics.fmean(seconds)
    )


Calls = Mapping[str, int]
"""The number of calls of each command on a node."""


def calls(info: str) -> dict[str, int]:
    """Parses the answer to `INFO commandstats`. Adds the calls of subcommands to their commands."""
    found: dict[str, int] = {}
    for line in info.splitlines():
        name, colon, fields = line.removeprefix("cmdstat_").partition(":calls=")
        if colon:
            command = name.partition("|")[0].lower()
            found[command] = found.get(command, 0) + int(fields.partition(",")[0])
    return found


def sent(before: Calls, after: Calls, sends: Collection[str] = ()) -> int:
    """Returns how many commands clients sent to a node between two calls of INFO."""
    own_info = 1  # the second INFO counts the first one
    return (
        sum(
            count - before.get(name, 0)
            for name, count in after.items()
            if name not in FROM_SCRIPTS or name in sends
        )
        - own_info
    )
