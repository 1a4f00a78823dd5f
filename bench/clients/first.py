"""Prints how many microseconds the first lock of a process takes, including creating the client."""

import sys
import time

import quorlock

start = time.perf_counter()
client = quorlock.Client(sys.argv[1:])
lease = client.lock("first").acquire()
print((time.perf_counter() - start) * 1e6)
lease.release()
