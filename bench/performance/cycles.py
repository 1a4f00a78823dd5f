"""Cycles on healthy nodes: one at a time, many in flight, with round trips, after a contention."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from time import monotonic

import quorlock
from bench.contender import Contender, FailedError
from bench.contenders import OWN, present
from bench.delay import slow_urls
from bench.group import Group
from bench.names import FLOOR, FLOOR_PLAIN, REDLOCK_5, REDSYNC, RSLOCK
from bench.settings import LIMIT, NODES, ROUNDS
from bench.turns import Lane, Summary, compare, rounds, start, summaries

COUNTS = [1, 3, 5, 7]
"""The numbers of nodes for one cycle at a time."""
LEVELS = [1, 8, 64, 1000]
"""The numbers of cycles in flight."""
MANY = 64
"""The level at which one node is measured, too."""
MOST_THREADS = 8
"""The maximum number of threads. More threads for locking are not realistic."""
MILLISECONDS = [0.5, 2.0]
"""The round-trip times: within a zone, and across zones."""
FEW_ROUND_TRIPS = [FLOOR, FLOOR_PLAIN, RSLOCK, REDLOCK_5, REDSYNC]
"""What quorlock is compared with on a network. Others take more round trips."""


def one_at_a_time() -> dict[str, dict[str, Summary]]:
    """Returns the summaries by number of nodes and by contender."""
    return {
        str(count): compare(
            f"one at a time, N = {count}",
            [each for each in present() if count == 1 or not each.needs_one_node],
            count,
            # Most goals use this number of nodes, and ratios of short times are noisy: measure
            # longer.
            count=ROUNDS * (4 if count == NODES else 1),
        )
        for count in COUNTS
    }


def in_flight() -> dict[str, dict[str, Summary]]:
    """Returns the summaries on five nodes by level and by contender."""
    able = [each for each in present() if not each.needs_one_node]
    return _in_flight(able, NODES, LEVELS)


def in_flight_one_node() -> dict[str, Summary]:
    """Returns the summaries on one node by contender, at the level `MANY`."""
    return _in_flight(present(), 1, [MANY])[str(MANY)]


def _in_flight(
    contenders: Sequence[Contender], nodes: int, chosen: Sequence[int]
) -> dict[str, dict[str, Summary]]:
    with ExitStack() as stack:
        group = Group(stack, nodes)
        # Use a process for each level: a contender that hangs with 1,000 may work with 8.
        lanes = {
            level: start(
                stack,
                [each for each in contenders if level <= most_in_flight(each)],
                group,
                concurrency=level,
            )
            for level in chosen
        }
        everyone = [lane for each in lanes.values() for lane in each]
        rounds(f"in flight, N = {nodes}", everyone, max(1, ROUNDS // 2))
        return {str(level): summaries(each) for level, each in lanes.items()}


def most_in_flight(contender: Contender) -> int:
    """Returns the largest level at which the contender is measured."""
    has_threads = contender.form == "sync" and contender.kind != "floor"
    return MOST_THREADS if has_threads else LEVELS[-1]


def round_trips() -> dict[str, dict[str, Summary]]:
    """Returns the summaries by round-trip time in milliseconds, and by contender."""
    return {f"{milliseconds:g}": _round_trips(milliseconds) for milliseconds in MILLISECONDS}


def _round_trips(milliseconds: float) -> dict[str, Summary]:
    few = [each for each in present() if each.kind == "quorlock" or each.name in FEW_ROUND_TRIPS]
    with ExitStack() as stack:
        group = Group(stack)
        lanes: list[Lane] = []
        for contender in few:
            # A relay for each contender: with many connections, a relay becomes slower.
            group.urls = slow_urls(stack, group, range(NODES), milliseconds)
            lanes += start(stack, [contender], group)
        rounds(f"round trips of {milliseconds:g} ms", lanes)
        return summaries(lanes)


def contention() -> dict[str, dict[str, Summary]]:
    """Returns the summaries of clients that have never waited for a lock ("before" a contention),
    and of clients that have ("after" it)."""
    with ExitStack() as stack:
        group = Group(stack)
        before, after = (start(stack, OWN.values(), group) for _ in range(2))
        for lane in after:
            _wait_once(lane, group)
        rounds("after a contention", before + after)
        return {"before": summaries(before), "after": summaries(after)}


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
