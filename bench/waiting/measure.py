"""What the times of many clients of one lock say. Pure: all of it is tested without a server.

Times are nanoseconds of the monotonic clock, which is the same in all processes of a machine.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

FROM_SCRIPTS = frozenset(
    name
    for line in (
        "get set del exists ttl pttl pexpire time lpush",
        "zadd zcard zrem zrange zrank publish",
    )
    for name in line.split()
)
"""What the scripts of the libraries call. INFO counts that together with what clients send, so it
is left out, for a library that sends some of it itself (`sends`) apart from that."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One client had the lock once."""

    client: int
    called: int
    acquired: int
    releasing: int
    released: int


@dataclass(frozen=True, slots=True)
class HandOff:
    """From the return of a release to the return of the next acquire."""

    micros: float
    """Less than 0 if the next one had the lock before the release returned: that waits for the
    answers of a majority, and the lock is free as soon as the nodes have done it."""
    same: bool
    """Whether the client handed it to itself, by being back before the others."""


def hand_offs(turns: Iterable[Turn], until: int) -> list[HandOff]:
    """Each release with the next acquire of any client, up to `until`.

    By then clients stop, and fewer and fewer are waiting.
    """
    ordered = sorted(turns, key=lambda turn: turn.acquired)
    return [
        HandOff((later.acquired - earlier.released) / 1000, earlier.client == later.client)
        for earlier, later in pairwise(ordered)
        if later.acquired <= until
    ]


def overlaps(turns: Iterable[Turn]) -> int:
    """How many turns began while another client had not yet begun to release: 0 for a lock."""
    count = 0
    last = 0
    for turn in sorted(turns, key=lambda turn: turn.acquired):
        count += turn.acquired < last
        last = max(last, turn.releasing)
    return count


@dataclass(frozen=True, slots=True)
class Summary:
    """What is told of many values."""

    count: int
    median: float
    low: float
    high: float
    p99: float


def summary(values: Sequence[float]) -> Summary | None:
    """None if there are too few of them to tell."""
    if len(values) < 2:
        return None
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    p99 = statistics.quantiles(values, n=100, method="inclusive")[98]
    return Summary(len(values), median, low, high, p99)


@dataclass(frozen=True, slots=True)
class Fairness:
    """How equally clients that all want the same were served."""

    luckiest: int
    """How often the client had the lock that had it most often."""
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
    """Counts turns up to `until`. A wait that goes on beyond it counts as long as it took;
    `unfinished` are those that were given up, from their begin to their end."""
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
"""How often each command was called on a node."""


def calls(info: str) -> dict[str, int]:
    """From the answer to `INFO commandstats`, subcommands with their commands."""
    found: dict[str, int] = {}
    for line in info.splitlines():
        name, colon, fields = line.removeprefix("cmdstat_").partition(":calls=")
        if colon:
            command = name.partition("|")[0].lower()
            found[command] = found.get(command, 0) + int(fields.partition(",")[0])
    return found


def sent(before: Calls, after: Calls, sends: Collection[str] = ()) -> int:
    """How many commands clients sent to a node from one INFO to the next one."""
    own_info = 1  # the first one is counted in the second
    return (
        sum(
            count - before.get(name, 0)
            for name, count in after.items()
            if name not in FROM_SCRIPTS or name in sends
        )
        - own_info
    )
