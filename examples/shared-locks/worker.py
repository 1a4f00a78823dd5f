r"""Works with a database, except while its schema is changed:

QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 DATABASE=/tmp/app.sqlite \
  python worker.py

Change the schema with `quorlock run schema -- python migrate.py`. It starts when the jobs that run
have ended, and new jobs wait for it.
"""

import signal
import sys
import time

import quorlock

import bookings

signal.signal(signal.SIGTERM, lambda *_: sys.exit())
with quorlock.Client(ttl=3) as client:
    schema = client.lock("schema", mode="shared")
    for number in range(sys.maxsize):
        with schema:
            columns = bookings.columns()
            bookings.book(number)
        print(f"booked with {' '.join(columns)}")
        time.sleep(0.01)
