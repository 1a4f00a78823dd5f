r"""Makes ids that are unique over all processes and hosts. Any number of processes run at the same
time, up to 32.

QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 python ids.py
"""

import os
import signal
import sys
import threading
import time

import quorlock

WORKERS = int(os.environ.get("WORKERS", "32"))
WORKER_BITS = 5
COUNT_BITS = 12
EPOCH = 1_767_225_600_000  # 2026-01-01, in milliseconds
SKEW = 2_000
"""By how many milliseconds the clocks of two hosts may differ."""


class ClockError(Exception):
    """The clock of this host was set back."""


class Ids:
    """Ids that fit into 64 bits: 41 bits of time, 5 of the worker number and 12 of a count."""

    def __init__(self, lease: quorlock.Lease) -> None:
        self._lease = lease
        self._worker = lease.slot
        self._mutex = threading.Lock()
        # The clock of the worker that had this number before may be ahead of this one.
        time.sleep(SKEW / 1000)
        self._last = 0

    def next(self) -> int:
        """Raises LeaseLostError once another process may have the worker number."""
        with self._mutex:
            now = milliseconds()
            last = max(self._last + 1, now << COUNT_BITS)
            while now < last >> COUNT_BITS:  # the count of this millisecond is used up
                if now + SKEW < last >> COUNT_BITS:
                    raise ClockError(f"it is {(last >> COUNT_BITS) - now} ms behind the last id")
                time.sleep(0.001)
                now = milliseconds()
            # After the clock was read: the time in the id is one at which the lease was valid.
            self._lease.check()
            self._last = last
        at, count = divmod(last, 1 << COUNT_BITS)
        return ((at << WORKER_BITS | self._worker) << COUNT_BITS) | count


def milliseconds() -> int:
    return time.time_ns() // 1_000_000 - EPOCH


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with quorlock.Client(ttl=3, max_hold=None) as client:  # for as long as the process runs
        with client.semaphore("id-workers", limit=WORKERS, wait=60) as lease:
            print(f"worker {lease.slot} with fence {lease.fence}")
            ids = Ids(lease)
            while True:
                for _ in range(10):
                    print(f"id {ids.next()}")
                time.sleep(0.01)


try:
    main()
except (quorlock.LeaseLostError, quorlock.LockTimeoutError, ClockError) as error:
    # A service manager starts the process again. It then gets a number that nobody else has.
    sys.exit(f"stopped: {error}")
