"""Counts commands and leftover keys on the nodes."""

from __future__ import annotations

import time
from collections.abc import Sequence

from measure import Calls, calls, sent
from servers import Server


def snapshot(servers: Sequence[Server]) -> list[Calls]:
    return [calls(str(server.command("INFO", "commandstats"))) for server in servers]


def per_node(before: list[Calls], servers: Sequence[Server]) -> float:
    """Returns the average number of commands that quorlock sent to a node since `before`."""
    after = snapshot(servers)
    return sum(map(sent, before, after)) / len(servers)


def delete(servers: Sequence[Server], text: str) -> None:
    """Deletes all keys whose names contain this text."""
    for server in servers:
        if found := _keys(server, f"*{text}*"):
            server.command("DEL", *found)


def leftovers(servers: Sequence[Server], patience: float) -> list[str]:
    """Returns the keys, except fence counters, that are still left after `patience` seconds."""
    deadline = time.monotonic() + patience
    while True:
        found = {key for server in servers for key in _keys(server, "*")}
        left = sorted(key for key in found if not key.endswith(":fence"))
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def _keys(server: Server, pattern: str) -> list[str]:
    reply = server.command("KEYS", pattern)
    return [str(key) for key in reply] if isinstance(reply, list) else []
