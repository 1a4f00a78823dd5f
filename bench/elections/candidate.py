"""A candidate, which answers each line of JSON on stdin with a line of JSON on stdout:

- `{"campaign": true}`: `{}`, and later, when it is elected, `{"elected": ns, "fence": n}`;
- `{"hand over to": name}`: `{"ended": ns, "taken": bool}`;
- `{"release": true}`: `{"ended": ns}`.

All times are of the clock that all processes share. `ended` is the end of the lease for its holder:
for a hand-over, the time of the event `lease.detached`.
"""

from __future__ import annotations

import json
import logging
import sys
import time

import quorlock

name, resource, ttl, *urls = sys.argv[1:]
client = quorlock.Client(urls)
election = client.elect(resource, holder=name, ttl=float(ttl))


detached: list[int] = []


class Ends(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if vars(record)["event"] == "lease.detached":
            detached.append(int(record.created * 1e9))


leases = logging.getLogger("quorlock.lease")
leases.setLevel(logging.DEBUG)
leases.addHandler(Ends())


def put(**answer: object) -> None:
    print(json.dumps(answer), flush=True)


def lead(lease: quorlock.Lease) -> None:
    put(elected=time.time_ns(), fence=lease.fence)
    command = json.loads(sys.stdin.readline())
    if successor := command.get("hand over to"):
        detached.clear()
        taken = lease.hand_over(successor)
        while not detached:
            time.sleep(0.001)
        put(ended=detached[0], taken=taken)
    else:
        # The lease is not valid from this call on.
        put(ended=time.time_ns())
        lease.release()


client.lock("warm").acquire().release()
for line in sys.stdin:
    assert json.loads(line) == {"campaign": True}
    put()
    election.run(lead)
