"""Holds a lease while the test suspends and resumes this process, and prints the lease's state.

See test_stopped.py.
"""

import json
import sys

import quorlock

client = quorlock.Client(sys.argv[1:], ttl=1)
lease = client.lock("r").acquire()
print(lease.fence, flush=True)
# The test suspends this process here, and writes a line to its stdin before resuming it.
sys.stdin.readline()
valid = lease.valid
lost = lease.wait_lost(60)
print(json.dumps({"valid": valid, "lost": lost, "released": lease.release()}), flush=True)
client.close()
