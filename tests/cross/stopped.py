"""Holds a lease, is stopped and continued, and says what it finds. See test_stopped.py."""

import json
import sys

import quorlock

client = quorlock.Client(sys.argv[1:], ttl=1)
lease = client.lock("r").acquire()
print(lease.fence, flush=True)
# The line is there when this process is continued.
sys.stdin.readline()
valid = lease.valid
told = lease.wait_lost(60)
print(json.dumps({"valid": valid, "told": told, "released": lease.release()}), flush=True)
client.close()
