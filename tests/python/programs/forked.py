"""Waits for a lock in a thread, forks, and waits for the lock in the child too.

Parent and child each append their name to a file when they hold the lock. Arguments: the file and
the node URLs.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import quorlock

LONG = 600
"""A time, in seconds, longer than any test."""


def main() -> None:
    order, urls = Path(sys.argv[1]), sys.argv[2:]
    client = quorlock.Client(urls, ttl=LONG, wait=LONG, retry_delay=(LONG, LONG))

    def wait(name: str) -> None:
        with client.lock("r"), order.open("a") as file:
            file.write(f"{name}\n")

    waiting = threading.Thread(target=wait, args=("parent",))
    waiting.start()
    sys.stdin.readline()
    pid = os.fork()
    if pid == 0:
        wait("child")
        client.close()
        os._exit(0)
    waiting.join()
    _, status = os.waitpid(pid, 0)
    sys.exit(status)


if __name__ == "__main__":
    main()
