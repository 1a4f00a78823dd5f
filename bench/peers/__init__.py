"""The peers that the bench compares with quorlock; see README.md in this directory.

The directory `tests` must be on the path, as for the rest of the bench.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from interop.installing import Ecosystem, NotInstalledError

from peers.ecosystems import AIOREDLOCK, GO, JAVA, NODE, PYTHON, REDLOCK_NG, RUST
from peers.peer import Language, Peer

__all__ = ["Peer", "available"]


@dataclass(frozen=True)
class _Library:
    """A peer that may not be installed. `Peer` documents the fields."""

    name: str
    ecosystem: Ecosystem
    language: Language
    blocks: bool = False
    one_node: bool = False
    frozen: bool = False

    def peer(self) -> Peer:
        return Peer(
            name=self.name,
            command=[*map(str, self.ecosystem.program), self.name],
            environment=dict(self.ecosystem.environment),
            nodes="one" if self.one_node else "many",
            language=self.language,
            form="sync" if self.blocks else "async",
            concurrency=True,
            frozen=self.frozen,
        )


_LIBRARIES = [
    _Library("pottery", PYTHON, "Python", blocks=True, frozen=True),
    _Library("pottery-asyncio", PYTHON, "Python", frozen=True),
    _Library("redlock-ng", REDLOCK_NG, "Python", blocks=True, frozen=True),
    _Library("redlock-ng-asyncio", REDLOCK_NG, "Python", frozen=True),
    _Library("redlock-py", PYTHON, "Python", blocks=True),
    _Library("aioredlock", AIOREDLOCK, "Python"),
    _Library("redis-py", PYTHON, "Python", blocks=True, one_node=True),
    _Library("redis-py-asyncio", PYTHON, "Python", one_node=True),
    _Library("python-redis-lock", PYTHON, "Python", blocks=True, one_node=True),
    _Library("redlock-4", NODE, "Node.js"),
    _Library("redlock-5", NODE, "Node.js", frozen=True),
    _Library("redis-semaphore", NODE, "Node.js"),
    _Library("rslock", RUST, "Rust", frozen=True),
    _Library("redsync", GO, "Go", frozen=True),
    _Library("redsync-fail-fast", GO, "Go", frozen=True),
    _Library("redisson", JAVA, "Java", blocks=True, frozen=True),
]


def available() -> tuple[list[Peer], dict[str, str]]:
    """Installs missing peers. Returns the installed ones, and why the others are missing."""
    ecosystems = {library.ecosystem.directory: library.ecosystem for library in _LIBRARIES}
    reasons = {}
    for directory, ecosystem in ecosystems.items():
        print(f"peers: {directory}, installed if it is missing", file=sys.stderr, flush=True)
        try:
            ecosystem.install()
        except NotInstalledError as error:
            reasons[directory] = str(error)
    missing = {
        library.name: reasons[library.ecosystem.directory]
        for library in _LIBRARIES
        if library.ecosystem.directory in reasons
    }
    return [library.peer() for library in _LIBRARIES if library.name not in missing], missing
