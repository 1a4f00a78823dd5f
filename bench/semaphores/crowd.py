"""Processes that contend for the permits of one semaphore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.contender import ask_all, start_all
from bench.peers.ecosystems import JAVA, NODE
from bench.semaphores.timeline import Turn
from bench.settings import PATIENCE, PROGRAMS

_SCRIPT = str(Path(__file__).with_name("permits.cjs"))


@dataclass(frozen=True)
class Program:
    """A library, wrapped in a program with the protocol in `bench/README.md`."""

    name: str
    command: Sequence[str]
    """The command of the program. The limit and the URLs of the nodes are appended."""
    environment: Mapping[str, str] = field(default_factory=dict)
    needs_zookeeper: bool = False
    """Whether its nodes are servers of ZooKeeper."""


RUST = Program("quorlock Rust", [f"{PROGRAMS}/rust-permits"])
JAVASCRIPT = Program("quorlock Node.js", ["node", _SCRIPT, "quorlock"])
REDIS_SEMAPHORE = Program("redis-semaphore", ["node", _SCRIPT, "redis-semaphore"], NODE.environment)
_JAVA = [*map(str, JAVA.program[:-1]), "Permits"]
REDISSON = Program("redisson", [*_JAVA, "redisson"])
CURATOR = Program("curator", [*_JAVA, "curator"], needs_zookeeper=True)


@dataclass(frozen=True)
class Load:
    """What each process of a crowd does. Times are in seconds."""

    tasks: int
    hold: float
    """The mean time for which a task holds its permit."""
    spread: float = 0.0
    """The largest difference of a single time from `hold`."""


@dataclass(frozen=True)
class Answer:
    """What a crowd did in one turn."""

    processes: Sequence[Sequence[Turn]]
    rounds: Sequence[int]
    """The rounds of requests of each acquire. Empty if the program does not count them."""


class Crowd:
    """Processes of one program, until `stack` is closed. None of them has run yet."""

    def __init__(
        self, stack: ExitStack, program: Program, limit: int, processes: int, urls: Sequence[str]
    ) -> None:
        # A client sends its requests in this order, as if each had another node nearby.
        firsts = (number % len(urls) for number in range(processes))
        commands = [
            [*program.command, str(limit), *urls[first:], *urls[:first]] for first in firsts
        ]
        self._processes = start_all(stack, commands, program.environment)

    def run(self, load: Load, seconds: float, processes: int | None = None) -> Answer:
        """Lets all tasks of some or all processes acquire, hold and release in loops.

        Raises FailedError.
        """
        request = {"seconds": seconds, **asdict(load)}
        answers = ask_all(self._processes[:processes], request, seconds + PATIENCE)
        turns = [[Turn(*turn) for turn in answer["turns"]] for answer in answers]
        return Answer(turns, [count for answer in answers for count in answer.get("rounds", ())])
