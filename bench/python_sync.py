"""quorlock in Python, blocking."""

import sys

from contender import serve

import quorlock

client = quorlock.Client(sys.argv[1:])


def cycle(key: int) -> None:
    with client.lock(f"sync-{key}"):
        pass


serve(cycle)
