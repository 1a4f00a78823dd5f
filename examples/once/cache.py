r"""Reads a report from a cache. If it is not there, one process of all computes it.

QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 \
  CACHE_URL=redis://127.0.0.1:6379 GATEWAY_URL=http://127.0.0.1:8900 python cache.py sales
"""

import os
import sys
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime

import quorlock
import redis

FRESH = 60  # seconds

locks = quorlock.Client(ttl=5)  # uses the nodes in QUORLOCK_NODES
cache = redis.Redis.from_url(os.environ["CACHE_URL"], decode_responses=True)


def cached(key: str, compute: Callable[[str], str]) -> str:
    if (found := cache.get(key)) is not None:
        return str(found)
    try:
        lease = locks.lock(f"cache:{key}", wait=10).acquire()
    except (quorlock.LockTimeoutError, quorlock.QuorumError):
        return compute(key)  # without the lock, the value is only more expensive
    try:
        # Another process may have computed it while this one waited.
        if (found := cache.get(key)) is not None:
            return str(found)
        computed = compute(key)
        cache.set(key, computed, ex=FRESH)
        return computed
    finally:
        lease.release()


def report(key: str) -> str:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["GATEWAY_URL"] + f"/{key}", b"{}", headers)
    with urllib.request.urlopen(request, timeout=60):
        return f"computed at {datetime.now(UTC).isoformat()}"


print(cached(sys.argv[1], report))
