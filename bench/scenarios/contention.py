"""One cycle at a time: clients that have never waited for a lock, and clients that have."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from time import monotonic

from contender import Contender, FailedError
from group import Group
from parameters import LIMIT
from turns import Lane, Summary, rounds, start

import quorlock


def measure(contenders: Sequence[Contender]) -> dict[str, dict[str, Summary]]:
    """Returns the summaries of quorlock by "before" or "after" a contention, and by contender."""
    own = [each for each in contenders if each.kind == "quorlock"]
    with ExitStack() as stack:
        group = Group(stack)
        before, after = start(stack, own, group), start(stack, own, group)
        for lane in after:
            _wait_once(lane, group)
        rounds("after a contention", before + after)
        return {
            kind: {lane.contender.name: lane.summary() for lane in lanes}
            for kind, lanes in [("before", before), ("after", after)]
        }


def _wait_once(lane: Lane, group: Group) -> None:
    """Makes the contender wait for a lock that this process holds, until it gets the lock."""
    with quorlock.Client(group.urls) as client:
        with client.lock(f"{lane.contender.name}-0") as lease:
            lane.process.send({"cycles": 1, "concurrency": 1})
            end = monotonic() + LIMIT
            while not client.status(lease.resource).waiters and monotonic() < end:
                pass
        try:
            lane.process.receive()
        except FailedError as error:
            lane.fail(error)
