"""What the times of the holders of one semaphore show."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any, NamedTuple


class Turn(NamedTuple):
    """When an acquire began, when it was granted, when the release began, and when it returned, in
    nanoseconds. The last three are None if the acquire timed out."""

    began: int
    granted: int | None
    ended: int | None
    released: int | None


class Served(NamedTuple):
    """A turn whose acquire was granted."""

    began: int
    granted: int
    ended: int
    released: int


@dataclass
class Timeline:
    """The turns of all processes of one crowd, collected over several rounds."""

    limit: int
    acquisitions: int = 0
    overruns: int = 0
    """The acquisitions after which more permits were held than the limit allows."""
    most: int = 0
    """The largest number of permits that were held at the same time."""
    held: list[float] = field(default_factory=list)
    """For each round, how many permits were held on average."""
    vacant: list[int] = field(default_factory=list)
    """For each hand-off, the nanoseconds from the begin of the release to the next grant."""
    hand_offs: list[int] = field(default_factory=list)
    """For each hand-off, the nanoseconds from the end of the release to the next grant."""
    seconds: float = 0.0

    def add(self, processes: Sequence[Sequence[Turn]]) -> None:
        """Adds the turns of one round, one sequence for each process."""
        granted = [_served(turns) for turns in processes]
        turns = [turn for each in granted for turn in each]
        self.acquisitions += len(turns)
        counts = _held_after_grants(turns)
        self.overruns += sum(count > self.limit for count in counts)
        self.most = max(self.most, *counts, 0)
        begin, end = _window(granted)
        average = _average(turns, self.limit, begin, end)
        if average is not None:
            self.held.append(average)
        self.seconds += max(0, end - begin) / 1e9
        for vacant, hand_off in _hand_offs(turns):
            self.vacant.append(vacant)
            self.hand_offs.append(hand_off)

    def summary(self) -> dict[str, Any]:
        return {
            "limit": self.limit,
            "acquisitions": self.acquisitions,
            "overruns": self.overruns,
            "most held": self.most,
            "average held": round(fmean(self.held), 3) if self.held else None,
            "per second": round(self.acquisitions / self.seconds, 1) if self.seconds else None,
            "vacant": micros(self.vacant),
            "hand-off": micros(self.hand_offs),
        }


def _served(turns: Iterable[Turn]) -> list[Served]:
    return [
        Served(turn.began, turn.granted, turn.ended, turn.released)
        for turn in turns
        if turn.granted is not None and turn.ended is not None and turn.released is not None
    ]


def _held_after_grants(turns: Iterable[Served]) -> list[int]:
    """Returns, for each grant, how many permits were held right after it.

    Holders that got or gave up their permits at the same time do not overlap.
    """
    changes = [(turn.granted, 1) for turn in turns] + [(turn.ended, -1) for turn in turns]
    held, counts = 0, []
    for _, change in sorted(changes):
        held += change
        if change > 0:
            counts.append(held)
    return counts


def _window(processes: Iterable[Sequence[Served]]) -> tuple[int, int]:
    """Returns the time in which all processes took part."""
    parts = [turns for turns in processes if turns]
    begin = max((min(turn.granted for turn in turns) for turns in parts), default=0)
    end = min((max(turn.ended for turn in turns) for turns in parts), default=0)
    return begin, end


def _average(turns: Sequence[Served], limit: int, begin: int, end: int) -> float | None:
    """Returns how many permits were held on average between the two times.

    Permits above the limit are not counted. Returns None if there is no time between the two.
    """
    changes = [(turn.granted, 1) for turn in turns] + [(turn.ended, -1) for turn in turns]
    held, area, last = 0, 0, begin
    for time, change in sorted(changes):
        now = min(max(time, begin), end)
        area += min(held, limit) * (now - last)
        last = now
        held += change
    return area / (end - begin) if end > begin else None


def _hand_offs(turns: Iterable[Served]) -> list[tuple[int, int]]:
    """Returns the hand-offs: the time since the begin and since the end of the release.

    Each grant to a waiter belongs to the oldest release that no other grant belongs to.
    """
    changes = sorted(
        [(turn.ended, False, turn) for turn in turns]
        + [(turn.granted, True, turn) for turn in turns]
    )
    free: deque[Served] = deque()
    times = []
    for time, is_grant, turn in changes:
        if not is_grant:
            free.append(turn)
        elif free:
            release = free.popleft()
            if turn.began < release.ended:
                times.append((time - release.ended, time - release.released))
    return times


def micros(times: Sequence[int]) -> float | None:
    """Returns the median in microseconds."""
    return round(median(times) / 1e3, 2) if times else None
