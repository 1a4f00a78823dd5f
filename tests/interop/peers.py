"""Peers: real releases of other lock libraries that share keys with quorlock.

Each ecosystem has one small program that runs one of its peers: `PROGRAM NAME URL...`. It reads one
JSON object per line from stdin and answers each with one JSON line on stdout. Times are in
milliseconds.

    {"acquire": "resource", "ttl": 1000}    {"held": true}, or false; tries once
    {"extend": "resource", "ttl": 1000}     {"held": true}, or false if the lock was lost
    {"release": "resource"}                 {}, also if the lock was lost

The program exits at the end of stdin, or at any error, with the reason on stderr.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from interop.installing import GO, NODE, PYTHON, RUST, Ecosystem
from waiting import TIMEOUT


@dataclass(frozen=True)
class Peer:
    """A lock library. `str` returns its name, with the release if several releases are tested."""

    name: str
    ecosystem: Ecosystem = field(repr=False)
    prefix: str = ""
    """The prefix that the library adds to the resource in the key."""
    nodes: int = 5
    extends: bool = True
    """Whether the library can extend a lock."""

    def __str__(self) -> str:
        return self.name


PEERS = [
    Peer("redlock-py", PYTHON, extends=False),
    Peer("pottery", PYTHON, prefix="redlock:"),
    Peer("redis-py", PYTHON, nodes=1),
    Peer("python-redis-lock", PYTHON, prefix="lock:", nodes=1),
    Peer("aioredlock", PYTHON),
    Peer("redlock-4", NODE),
    Peer("redlock-5", NODE),
    Peer("redlock-universal", NODE),
    Peer("redis-semaphore", NODE, prefix="mutex:"),
    Peer("rslock", RUST),
    Peer("redsync", GO),
]


class PeerProcess:
    """A process that runs a peer. It is killed at the end of `with`."""

    def __init__(self, peer: Peer, urls: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [*peer.ecosystem.program, peer.name, *urls],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, **peer.ecosystem.environment},
        )

    def acquire(self, resource: str, ttl: int) -> bool:
        """Tries once to acquire the lock for `ttl` milliseconds. Returns whether it succeeded."""
        held: bool = self._ask(acquire=resource, ttl=ttl)["held"]
        return held

    def extend(self, resource: str, ttl: int) -> bool:
        """Extends the lock to `ttl` milliseconds from now. Returns whether it was still held."""
        held: bool = self._ask(extend=resource, ttl=ttl)["held"]
        return held

    def release(self, resource: str) -> None:
        """Releases the lock, whether or not it is still held."""
        self._ask(release=resource)

    def kill(self) -> None:
        """Kills the process, without releasing its locks."""
        self._process.kill()
        self._process.wait()

    def _ask(self, **command: Any) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        # Kill a peer that hangs, so that the test fails.
        limit = threading.Timer(TIMEOUT, self._process.kill)
        limit.start()
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            line = self._process.stdout.readline()
        finally:
            limit.cancel()
        assert line, f"the peer exited without an answer to {command}"
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Kill the process instead of closing stdin: work in the background could delay its exit.
        self.kill()
