"""Rewrites the settings a hundred times: `python writer.py`. Nobody reads meanwhile."""

import time

import quorlock

import settings

with quorlock.Client(ttl=3) as client:
    for revision in range(1, 101):
        with client.lock("settings") as lease:
            for name in settings.NAMES:
                lease.check()
                settings.write(name, revision)
                time.sleep(0.002)  # here, the two files differ
print("wrote revision 100")
