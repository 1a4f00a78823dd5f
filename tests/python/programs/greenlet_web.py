"""A WSGI application that runs in greenlets (gunicorn -k gevent).

/hold acquires a lock, /release releases it, /wait waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import quorlock

client = quorlock.Client(wait=None)
# Acquired here so that the hub is in use when the worker is forked.
lease_of_master = client.lock("master").acquire()
held: list[quorlock.Lease] = []


def application(
    environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]
) -> Iterable[bytes]:
    match environ["PATH_INFO"]:
        case "/wait":
            with client.lock("r") as lease:
                answer = "held" if lease.valid else "lost"
        case "/waiting":
            answer = str(client.stats().waiting)
        case "/hold":
            held.append(client.lock("r").acquire())
            answer = "held"
        case _:
            answer = "released" if held.pop().release() else "lost"
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [answer.encode()]
