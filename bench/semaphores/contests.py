"""The contests: who contends for the permits of a semaphore, and how long permits are held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.semaphores.crowd import (
    CURATOR,
    JAVASCRIPT,
    REDIS_SEMAPHORE,
    REDISSON,
    RUST,
    Load,
    Program,
)
from bench.semaphores.goals import USE
from bench.settings import NODES, pick


@dataclass(frozen=True)
class Entrant:
    program: Program
    nodes: int
    processes: int
    tasks: int = 1
    """The tasks of each process."""

    @property
    def contenders(self) -> int:
        return self.processes * self.tasks

    @property
    def name(self) -> str:
        each = f" of {self.tasks} tasks" if self.tasks > 1 else ""
        return f"{self.program.name}, N = {self.nodes}, {self.processes} processes{each}"


@dataclass(frozen=True)
class Contest:
    name: str
    limit: int
    entrants: Sequence[Entrant]
    hold: float
    """The mean time for which a permit is held, in seconds."""
    spread: float = 0.0
    """The largest difference of a single time from `hold`."""
    pinned: bool = True
    """Whether servers and clients have CPUs of their own. If not, the scheduler places them, and
    requests of several clients reach the nodes in different orders more often."""

    def load(self, entrant: Entrant) -> Load:
        return Load(entrant.tasks, self.hold, self.spread)


_JAVA = pick((4, 5), (2, 10))
"""The processes and tasks of the libraries in Java, whose processes start slowly."""

CONTESTS = [
    *(
        Contest(f"rounds at {load} load, limit {limit:,}", limit, [entrant], hold, hold / 2)
        for limit, hold, load, entrant in [
            (10, 0.01, "half", Entrant(RUST, NODES, 5)),
            (10, 0.01, "full", Entrant(RUST, NODES, 10)),
            # Held for so long that the servers' CPU does not limit the contenders.
            (1000, 1.0, "half", Entrant(RUST, NODES, 10, 50)),
            (1000, 1.0, "full", Entrant(RUST, NODES, 10, 100)),
        ]
    ),
    # Held for so long that most hand-offs do not coincide with others.
    Contest(
        "hand-off",
        10,
        [
            Entrant(RUST, NODES, 20),
            Entrant(RUST, 1, 20),
            Entrant(REDIS_SEMAPHORE, NODES, 4, 5),
            Entrant(REDISSON, 1, *_JAVA),
            Entrant(CURATOR, 3, *_JAVA),
        ],
        hold=0.15,
        spread=0.075,
    ),
    # Several contests, so that few processes wait for their turn at the same time.
    *(
        Contest(f"{USE} {where}", 10, entrants, hold=0.01)
        for where, entrants in [
            (
                "on five nodes",
                [
                    # None of these waits.
                    Entrant(RUST, NODES, 10),
                    Entrant(RUST, NODES, 20),
                    Entrant(RUST, NODES, 4, 5),
                    Entrant(REDIS_SEMAPHORE, NODES, 4, 5),
                ],
            ),
            (
                "on fewer nodes",
                [
                    Entrant(RUST, 3, 4, 5),
                    Entrant(RUST, 1, 4, 5),
                    Entrant(RUST, 1, 20),
                ],
            ),
            ("in Java", [Entrant(REDISSON, 1, *_JAVA), Entrant(CURATOR, 3, *_JAVA)]),
        ]
    ),
    Contest(
        "limit",
        2,
        [
            Entrant(REDIS_SEMAPHORE, 3, 6),
            Entrant(JAVASCRIPT, 3, 6),
            Entrant(RUST, 3, 6),
            Entrant(REDISSON, 1, pick(6, 2)),
            Entrant(CURATOR, 3, pick(6, 2)),
        ],
        hold=0.01,
        spread=0.005,
        pinned=False,
    ),
]
