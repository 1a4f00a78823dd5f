"""The contenders of this topic: each is a library with the settings that it is measured with."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from bench import peers
from bench.peers import ecosystems
from bench.settings import HERE, NODES

PROGRAMS = HERE / "waiting" / "programs"

# Processes that also use quorlock run with this Python, and import the libraries of another one.
_PACKAGES = sysconfig.get_path("purelib", "venv", {"base": str(ecosystems.PYTHON_VENV)})

WORKERS: Mapping[str, tuple[Sequence[str], Mapping[str, str]]] = {
    "Python": ([sys.executable, f"{PROGRAMS}/worker.py"], {"PYTHONPATH": _PACKAGES}),
    "Node.js": (["node", f"{PROGRAMS}/worker.js"], ecosystems.NODE.environment),
}
"""The command and the environment of the workers in each language."""


@dataclass(frozen=True)
class Contender:
    """A library, and how it is used."""

    name: str
    library: str
    """The name of the library in the workers."""
    languages: Sequence[str]
    """The languages of its processes, in equal parts if there are two."""
    nodes: int = NODES
    tuned: bool = False
    sends: frozenset[str] = frozenset()
    """See `turns.FROM_SCRIPTS`."""

    @property
    def is_peer(self) -> bool:
        return self.library != "quorlock"


_SET = frozenset({"set"})

QUORLOCK_PYTHON = Contender("quorlock Python", "quorlock", ["Python"])
QUORLOCK_NODE = Contender("quorlock Node.js", "quorlock", ["Node.js"])
QUORLOCK_MIXED = Contender("quorlock, half of each", "quorlock", ["Python", "Node.js"])
REDLOCK = Contender("redlock", "redlock", ["Node.js"])
POTTERY = Contender("pottery", "pottery", ["Python"], sends=_SET)
REDIS_PY = Contender("redis-py, N = 1", "redis-py", ["Python"], nodes=1, sends=_SET)

CONTENDERS = [
    QUORLOCK_PYTHON,
    QUORLOCK_NODE,
    QUORLOCK_MIXED,
    REDLOCK,
    Contender("redlock, 5 to 10 ms", "redlock", ["Node.js"], tuned=True),
    Contender("redis-semaphore", "redis-semaphore", ["Node.js"], sends=_SET),
    Contender("redis-semaphore, 5 ms", "redis-semaphore", ["Node.js"], tuned=True, sends=_SET),
    POTTERY,
    Contender("pottery, 0 to 10 ms", "pottery", ["Python"], tuned=True, sends=_SET),
    REDIS_PY,
    Contender("redis-py, N = 1, 5 ms", "redis-py", ["Python"], nodes=1, tuned=True, sends=_SET),
    Contender("python-redis-lock, N = 1", "python-redis-lock", ["Python"], nodes=1, sends=_SET),
]

FAIR = [QUORLOCK_MIXED, REDLOCK, POTTERY, REDIS_PY]


@cache
def missing() -> dict[str, str]:
    """Installs the libraries. Returns the reasons why contenders are left out, by their names."""
    libraries = {"Python": ecosystems.PYTHON, "Node.js": ecosystems.NODE}
    reasons = peers.install(libraries.values())
    return {
        contender.name: reasons[libraries[language].directory]
        for contender in CONTENDERS
        for language in contender.languages
        if contender.is_peer and libraries[language].directory in reasons
    }


def present() -> list[Contender]:
    return [each for each in CONTENDERS if each.name not in missing()]
