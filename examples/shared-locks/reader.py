r"""Reads settings that another program rewrites. Any number of readers run at the same time.

QUORLOCK_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 SETTINGS=/tmp/settings \
  python reader.py
"""

import signal
import sys
import time

import quorlock

import settings

signal.signal(signal.SIGTERM, lambda *_: sys.exit())
with quorlock.Client(ttl=3) as client:
    shared = client.lock("settings", mode="shared")
    while True:
        with shared:
            found = settings.read()
        print(" ".join(f"{name}={revision}" for name, revision in found.items()))
        time.sleep(0.01)
