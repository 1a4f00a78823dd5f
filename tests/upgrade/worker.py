"""A client of one build that takes turns with others until its stdin ends.

After its first turn, it prints the path of the build. At the end, it prints its turns: the fence of
each, and when it began and ended, in nanoseconds of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import quorlock

over = threading.Event()


def wait_for_end() -> None:
    sys.stdin.read()
    over.set()


threading.Thread(target=wait_for_end, daemon=True).start()
turns = []
with quorlock.Client(json.loads(sys.argv[1]), wait=60, node_timeout=5) as client:
    while not over.is_set():
        with client.lock("turns") as lease:
            began = time.monotonic_ns()
            time.sleep(0.002)
            lease.check()
            turns.append((lease.fence, began, time.monotonic_ns()))
        if len(turns) == 1:
            print(quorlock.__file__, flush=True)
print(json.dumps(turns))
