"""The contenders, the durations and the goals of the measurements."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from interop import installing
from interop.installing import Ecosystem

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

ROUNDS = int(os.environ.get("ROUNDS", "4"))
SECONDS = float(os.environ.get("SECONDS", "2"))

NODES = 5
WAITING = [2, 8, 32]
"""The numbers of processes with which all contenders are measured."""
UNCONTENDED = 1
FURTHER = {4: (4, 1), 16: (16, 1), 64: (8, 8)}
"""Further numbers of clients, for which only commands are counted: processes, clients in each."""

HAND_OFF_GOAL = 3.0
"""The maximum median of a hand-off, as a multiple of an uncontended acquire."""
COMMANDS_GOAL = 8.0
"""The maximum number of commands per node and acquisition."""
FLAT_GOAL = 1.5
"""The maximum ratio between the most and the least commands, over all numbers of clients."""
TURNS_GOAL = 1.5
WAIT_GOAL = 3.0
DEATH_GOAL = 100.0
"""The maximum time in milliseconds from the end of a killed holder's ttl to the next lease."""

_CACHE = ROOT / ".cache" / "bench-waiting"
_PACKAGES = _CACHE / "python" / "packages"
_INTO = [f"--target={_PACKAGES}", "--requirement=requirements.txt"]

PYTHON = replace(
    installing.PYTHON,
    # A directory, not a virtual environment: processes that also use quorlock import from it.
    steps=[
        [sys.executable, "-m", "pip", "install", "--no-deps", "--upgrade", *_INTO],
    ],
    program=[sys.executable, "-m", "contenders.worker"],
    environment={**installing.PYTHON.environment, "PYTHONPATH": str(_PACKAGES)},
    home=HERE,
    cache=_CACHE,
)

NODE = installing.node(HERE, _CACHE, HERE / "contenders" / "worker.js")


@dataclass(frozen=True)
class Contender:
    """A library, and how it is used."""

    name: str
    library: str
    """The name of the library in the workers."""
    ecosystems: Sequence[Ecosystem]
    """The ecosystems of its processes, in equal parts if there are two."""
    nodes: int = NODES
    tuned: bool = False
    sends: frozenset[str] = frozenset()
    """See `measure.FROM_SCRIPTS`."""

    @property
    def is_peer(self) -> bool:
        return self.library != "quorlock"


_SET = frozenset({"set"})

QUORLOCK_PYTHON = Contender("quorlock Python", "quorlock", [PYTHON])
QUORLOCK_NODE = Contender("quorlock Node.js", "quorlock", [NODE])
QUORLOCK_MIXED = Contender("quorlock, half of each", "quorlock", [PYTHON, NODE])
REDLOCK = Contender("redlock", "redlock", [NODE])
POTTERY = Contender("pottery", "pottery", [PYTHON], sends=_SET)
REDIS_PY = Contender("redis-py, N = 1", "redis-py", [PYTHON], nodes=1, sends=_SET)

CONTENDERS = [
    QUORLOCK_PYTHON,
    QUORLOCK_NODE,
    QUORLOCK_MIXED,
    REDLOCK,
    Contender("redlock, 5 to 10 ms", "redlock", [NODE], tuned=True),
    Contender("redis-semaphore", "redis-semaphore", [NODE], sends=_SET),
    Contender("redis-semaphore, 5 ms", "redis-semaphore", [NODE], tuned=True, sends=_SET),
    POTTERY,
    Contender("pottery, 0 to 10 ms", "pottery", [PYTHON], tuned=True, sends=_SET),
    REDIS_PY,
    Contender("redis-py, N = 1, 5 ms", "redis-py", [PYTHON], nodes=1, tuned=True, sends=_SET),
    Contender("python-redis-lock, N = 1", "python-redis-lock", [PYTHON], nodes=1, sends=_SET),
]

FAIR = [QUORLOCK_MIXED, REDLOCK, POTTERY, REDIS_PY]
