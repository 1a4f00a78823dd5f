"""Programs that hold leases.

A holder is a process that is started with the URLs of the nodes. It renews its leases, and answers
each line of its standard input:

- `{"hold": n, "ttl": s}`: acquires n leases, then answers `{"seconds": elapsed time}`, and also
  `"heap": bytes` with the growth of its heap if it can measure that;
- `{"rest": s}`: waits for s seconds, then answers `{"seconds": elapsed time, "cpu": CPU seconds,
  "valid": whether all leases are still valid}`;
- anything else: answers `{}` immediately.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from bench.contender import Process
from bench.group import Group
from bench.names import ASYNCIO, NODE, RUST
from bench.settings import HERE, PROGRAMS

HOLDERS: Mapping[str, Sequence[str]] = {
    RUST: [f"{PROGRAMS}/rust-hold"],
    ASYNCIO: [sys.executable, f"{HERE}/clients/hold.py"],
    NODE: ["node", "--expose-gc", f"{HERE}/clients/hold.js"],
}
PATIENCE = 300.0
"""Seconds within which all leases must be acquired."""


class Holder:
    """A process that holds leases on nodes of its own, until `stack` is closed."""

    def __init__(self, stack: ExitStack, name: str) -> None:
        self.name = name
        self.group = Group(stack)
        self._process = Process([*HOLDERS[name], *self.group.urls], {})
        stack.callback(self._process.close)
        self._process.ask({}, PATIENCE)

    @property
    def pid(self) -> int:
        return self._process.pid

    def hold(self, leases: int, ttl: float) -> dict[str, Any]:
        return self._process.ask({"hold": leases, "ttl": ttl}, PATIENCE)

    def begin_rest(self, seconds: float) -> None:
        self._servers = self.group.cpu()
        self._process.send({"rest": seconds})

    def end_rest(self) -> dict[str, float]:
        """Returns the elapsed seconds, and the shares of a core of the client and of an average
        server. Exits if a lease was lost."""
        answer = self._process.receive(PATIENCE)
        if not answer["valid"]:
            raise SystemExit(f"{self.name}: a lease was lost")
        seconds = answer["seconds"]
        servers = (self.group.cpu() - self._servers) / len(self.group.meters)
        return {
            "seconds": seconds,
            "client": answer["cpu"] / seconds if seconds else 0.0,
            "server": servers / seconds if seconds else 0.0,
        }

    def rest(self, seconds: float) -> dict[str, float]:
        self.begin_rest(seconds)
        return self.end_rest()
