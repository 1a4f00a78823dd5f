"""The contender quorlock in Python with blocking calls."""

import sys

from serving import serve

import quorlock

client = quorlock.Client(sys.argv[1:], auto_extend=False)


def cycle(key: str) -> None:
    with client.lock(key):
        pass


serve("quorlock Python", cycle)
