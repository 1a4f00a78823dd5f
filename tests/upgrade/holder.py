"""A client of one build: runs one JSON command per line of stdin. Uses only the API that the oldest
tested build has."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import quorlock

LONG = 600.0
"""A time, in seconds, longer than any test."""
PATIENCE = 60.0
"""How long an acquire waits, in seconds."""

client = quorlock.Client(
    json.loads(sys.argv[1]),
    holder=sys.argv[2],
    ttl=LONG,
    wait=PATIENCE,
    node_timeout=5,
    **json.loads(sys.argv[3]),
)
leases: dict[str, Any] = {}


def hold(name: str, lease: Any) -> dict[str, Any]:
    leases[name] = lease
    return {"fence": lease.fences["r"]}


def lock(resources: list[str], name: str, **options: Any) -> dict[str, Any]:
    return hold(name, client.lock(*resources, **options).acquire())


def permit(resource: str, limit: int, name: str, **options: Any) -> dict[str, Any]:
    return hold(name, client.semaphore(resource, limit=limit, **options).acquire())


def adopt(text: str, name: str) -> dict[str, Any]:
    return hold(name, client.adopt(text))


def waiters(kind: str) -> int:
    status = client.semaphore("r", limit=1).status() if kind == "permit" else client.status("r")
    return int(status.waiters)


COMMANDS: dict[str, Callable[..., Any]] = {
    "adopt": adopt,
    "detach": lambda name: leases[name].detach(within=LONG),
    "extend": lambda name: leases[name].extend(),
    "file": lambda: quorlock.__file__,
    "force_release": lambda resource: len(client.force_release(resource)),
    "holder": lambda: client.status("r").holder,
    "lock": lock,
    "permit": permit,
    "release": lambda name: leases[name].release(),
    "upgrade": lambda name, to: hold(to, leases[name].try_upgrade()),
    "valid": lambda name: leases[name].valid,
    "waiters": waiters,
}

for line in sys.stdin:
    request = json.loads(line)
    try:
        answer = {"ok": COMMANDS[request["command"]](**request["arguments"])}
    except Exception as error:
        answer = {"error": getattr(error, "code", type(error).__name__), "text": str(error)}
    print(json.dumps(answer), flush=True)
