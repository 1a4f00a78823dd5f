"""Waits in a thread, forks, and waits in the child as well. Each writes its name when it has the
lock. Takes a file to write to, and the nodes."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import quorlock

PATIENCE = 600


def main() -> None:
    order, urls = Path(sys.argv[1]), sys.argv[2:]
    delay = (PATIENCE, PATIENCE)
    client = quorlock.Client(urls, ttl=PATIENCE, wait=PATIENCE, retry_delay=delay)

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
