"""The contender quorlock in Python with blocking calls."""

import sys
from collections.abc import Callable

from serving import serve

import quorlock

client = quorlock.Client(sys.argv[1:], auto_extend=False)


def lock(key: str) -> Callable[[], None]:
    def cycle() -> None:
        with client.lock(key):
            pass

    return cycle


serve("quorlock Python", lock)
