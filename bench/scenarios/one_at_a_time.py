"""One cycle at a time: a single loop that acquires and releases."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from contender import Contender
from group import Group
from parameters import NODES, ROUNDS
from turns import Summary, rounds, start

COUNTS = [1, 3, 5, 7]
"""The numbers of nodes."""


def measure(contenders: Sequence[Contender]) -> dict[str, dict[str, Summary]]:
    """Returns the summaries by number of nodes and by contender."""
    return {str(count): _measure(contenders, count) for count in COUNTS}


def _measure(contenders: Sequence[Contender], count: int) -> dict[str, Summary]:
    able = [each for each in contenders if count == 1 or not each.needs_one_node]
    with ExitStack() as stack:
        lanes = start(stack, able, Group(stack, count))
        # Most goals use this number of nodes, and ratios of short times are noisy: measure longer.
        turns = ROUNDS * (4 if count == NODES else 1)
        rounds(f"one at a time, N = {count}", lanes, turns)
        return {lane.contender.name: lane.summary() for lane in lanes}
