"""The Python process of test_limit.py: does the same as limited.js."""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import quorlock

record, rounds, limit, *urls = sys.argv[1:]
client = quorlock.Client(urls, ttl=60, wait=None)
semaphore = client.semaphore("api", limit=int(limit))
file = os.open(record, os.O_WRONLY | os.O_APPEND)


def work(_: int) -> None:
    for _ in range(int(rounds)):
        with semaphore as lease:
            os.write(file, f"begin {lease.slot} {lease.fence}\n".encode())
            time.sleep(0.002)
            os.write(file, f"end {lease.slot} {lease.fence}\n".encode())


with ThreadPoolExecutor() as pool:
    list(pool.map(work, range(3)))
client.close()
