"""Acquires on request, and holds until it is killed: `holder.py RESOURCE TTL URL...`.

It answers `{"acquire": true}` with the times at which acquire was called and returned.
"""

from __future__ import annotations

import json
import sys
import time

import quorlock


def main() -> None:
    _, resource, ttl, *urls = sys.argv
    client = quorlock.Client(urls)
    client.lock(f"{resource}-warm").acquire().release()
    print("{}", flush=True)
    sys.stdin.readline()
    called = time.monotonic_ns()
    lease = client.lock(resource, ttl=float(ttl), auto_extend=False).acquire()
    print(json.dumps({"called": called, "acquired": time.monotonic_ns()}), flush=True)
    sys.stdin.read()
    lease.release()


if __name__ == "__main__":
    main()
