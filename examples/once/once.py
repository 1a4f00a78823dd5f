r"""Charges a card once for each key, and prints the same result each time.

QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 DATABASE=/tmp/app.sqlite \
  GATEWAY_URL=http://127.0.0.1:8900 python once.py order-42
"""

import os
import sqlite3
import sys
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime

import quorlock

locks = quorlock.Client(ttl=5)  # uses the nodes in QUORLOCK_NODES
database = sqlite3.connect(os.environ["DATABASE"], timeout=10, isolation_level=None)
database.execute("CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, result TEXT NOT NULL)")


def result_of(key: str) -> str | None:
    row = database.execute("SELECT result FROM results WHERE key = ?", [key]).fetchone()
    return None if row is None else str(row[0])


def once(key: str, work: Callable[[str], str]) -> str:
    """Runs the work unless it was done, in any process. Returns the result of the first run."""
    if (found := result_of(key)) is not None:
        return found
    with locks.lock(f"once:{key}", wait=60) as lease:
        # Another process may have done the work while this one waited.
        if (found := result_of(key)) is not None:
            return found
        result = work(key)
        lease.check()
        # The primary key refuses a second result, even from a process that was paused here.
        database.execute("INSERT INTO results VALUES (?, ?)", [key, result])
        return result


def charge(key: str) -> str:
    # If this process dies before the `INSERT`, the next one sends the same key again.
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    request = urllib.request.Request(os.environ["GATEWAY_URL"] + "/charges", b"{}", headers)
    with urllib.request.urlopen(request, timeout=60):
        return f"charged at {datetime.now(UTC).isoformat()}"


print(once(sys.argv[1], charge))
