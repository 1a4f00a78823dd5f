"""One cycle at a time on a network with a round-trip time, as in a zone or across zones."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from contender import Contender
from figures import FLOOR, FLOOR_PLAIN, REDLOCK_5, RSLOCK
from group import Group
from slow import slow_urls
from turns import Lane, Summary, rounds, start

MILLISECONDS = [0.5, 2.0]
"""The round-trip times: within a zone, and across zones."""
COMPARED = [FLOOR, FLOOR_PLAIN, RSLOCK, REDLOCK_5, "redsync"]
"""What quorlock is compared with. Others take more round trips."""


def measure(contenders: Sequence[Contender]) -> dict[str, dict[str, Summary]]:
    """Returns the summaries by round-trip time in milliseconds, and by contender."""
    chosen = [each for each in contenders if each.kind == "quorlock" or each.name in COMPARED]
    return {f"{milliseconds:g}": _measure(chosen, milliseconds) for milliseconds in MILLISECONDS}


def _measure(contenders: Sequence[Contender], milliseconds: float) -> dict[str, Summary]:
    with ExitStack() as stack:
        group = Group(stack)
        lanes: list[Lane] = []
        for contender in contenders:
            # A relay for each contender: with many connections, a relay becomes slower.
            group.urls = slow_urls(stack, group, range(len(group.servers)), milliseconds)
            lanes += start(stack, [contender], group)
        rounds(f"round trips of {milliseconds:g} ms", lanes)
        return {lane.contender.name: lane.summary() for lane in lanes}
