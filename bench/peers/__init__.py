"""The peers that the bench compares with quorlock; see README.md in this directory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from interop.installing import Ecosystem, NotInstalledError

from bench.contender import Contender, Form, Language
from bench.peers.ecosystems import AIOREDLOCK, GO, JAVA, NODE, PYTHON, REDLOCK_NG, RUST
from bench.progress import progress


@dataclass(frozen=True)
class Library:
    """A library, wrapped in a program with the protocol of contenders."""

    name: str
    ecosystem: Ecosystem
    language: Language
    form: Form
    one_node: bool = False
    """Whether it supports only a single node."""

    def contender(self) -> Contender:
        command = [*map(str, self.ecosystem.program), self.name]
        environment = self.ecosystem.environment
        return Contender(
            self.name, "peer", self.language, self.form, command, environment, self.one_node
        )


LIBRARIES = [
    Library("pottery", PYTHON, "Python", "sync"),
    Library("pottery-asyncio", PYTHON, "Python", "async"),
    Library("redlock-ng", REDLOCK_NG, "Python", "sync"),
    Library("redlock-ng-asyncio", REDLOCK_NG, "Python", "async"),
    Library("redlock-py", PYTHON, "Python", "sync"),
    Library("aioredlock", AIOREDLOCK, "Python", "async"),
    Library("redis-py", PYTHON, "Python", "sync", one_node=True),
    Library("redis-py-asyncio", PYTHON, "Python", "async", one_node=True),
    Library("python-redis-lock", PYTHON, "Python", "sync", one_node=True),
    Library("redlock-4", NODE, "Node.js", "async"),
    Library("redlock-5", NODE, "Node.js", "async"),
    Library("redis-semaphore", NODE, "Node.js", "async"),
    Library("rslock", RUST, "Rust", "async"),
    Library("redsync", GO, "Go", "async"),
    Library("redsync-fail-fast", GO, "Go", "async"),
    Library("redisson", JAVA, "Java", "sync"),
]


def install(ecosystems: Iterable[Ecosystem]) -> dict[str, str]:
    """Installs missing libraries. Returns why some are not installed, by the directory."""
    reasons = {}
    for directory, ecosystem in {each.directory: each for each in ecosystems}.items():
        progress(f"installing the peers in {directory} if they are missing")
        try:
            ecosystem.install()
        except NotInstalledError as error:
            reasons[directory] = str(error)
    return reasons


def node(name: str, library: str) -> Contender:
    """Returns a contender that is a library of `node/peer.cjs`."""
    command = [*map(str, NODE.program), library]
    return Contender(name, "peer", "Node.js", "async", command, NODE.environment)


def java(name: str, library: str) -> Contender:
    """Returns a contender that is a library of `Peer.java`."""
    return Contender(name, "peer", "Java", "sync", [*map(str, JAVA.program), library])
