"""The nodes of all scenarios, and what is counted on them: commands, and leftover keys."""

from __future__ import annotations

import atexit
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache

from servers import Server

from bench.group import Group
from bench.waiting.turns import Calls, calls, sent

EXPIRED = 10.0
"""Seconds after which all keys of quorlock except fence counters must have expired."""


@cache
def group() -> Group:
    stack = ExitStack()
    atexit.register(stack.close)
    return Group(stack)


def nodes() -> list[Server]:
    return list(group().servers)


def snapshot(servers: Sequence[Server]) -> list[Calls]:
    return [calls(str(server.command("INFO", "commandstats"))) for server in servers]


def per_node(before: list[Calls]) -> float:
    """Returns the average number of commands that quorlock sent to a node since `before`."""
    after = snapshot(nodes())
    return sum(map(sent, before, after)) / len(after)


def delete(servers: Sequence[Server], text: str) -> None:
    """Deletes all keys whose names contain this text."""
    for server in servers:
        if found := _keys(server, f"*{text}*"):
            server.command("DEL", *found)


def leftovers() -> list[str]:
    """Returns the keys, except fence counters, that are left when all clients are closed."""
    deadline = time.monotonic() + EXPIRED
    while True:
        found = {key for server in nodes() for key in _keys(server, "*")}
        left = sorted(key for key in found if not key.endswith(":fence"))
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def _keys(server: Server, pattern: str) -> list[str]:
    reply = server.command("KEYS", pattern)
    return [str(key) for key in reply] if isinstance(reply, list) else []
