"""A WSGI application that is loaded before its workers are forked (gunicorn --preload).

Each request increments the number in the file $COUNTER while it holds the lock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import quorlock

COUNTER = Path(os.environ["COUNTER"])

client = quorlock.Client(wait=60, retry_delay=(0.001, 0.02))
counting = client.lock("counter")
# Acquired here so that the client is in use when the workers are forked.
lease_of_master = client.lock("master").acquire()


def application(
    environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]
) -> Iterable[bytes]:
    assert not lease_of_master.valid
    with counting:
        count = int(COUNTER.read_text())
        time.sleep(0.001)
        COUNTER.write_text(str(count + 1))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]
