"""Many concurrent cycles, each on its own key: the throughput of one process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from contender import Contender
from group import Group
from parameters import NODES, ROUNDS
from turns import Summary, rounds, start

LEVELS = [1, 8, 64, 1000]
"""The numbers of cycles in flight."""
MANY = 64
"""The level at which one node is measured, too."""
MOST_THREADS = 8
"""The maximum number of threads. More threads for locking are not realistic."""


def levels(contender: Contender) -> list[int]:
    """Returns the levels at which the contender is measured."""
    if not contender.concurrency:
        return [1]
    has_threads = contender.form == "sync" and contender.kind != "floor"
    return [level for level in LEVELS if level <= MOST_THREADS or not has_threads]


def measure(contenders: Sequence[Contender]) -> dict[str, dict[str, Summary]]:
    """Returns the summaries on five nodes by level and by contender."""
    able = [each for each in contenders if not each.needs_one_node]
    return _measure(able, NODES, LEVELS)


def measure_one_node(contenders: Sequence[Contender]) -> dict[str, Summary]:
    """Returns the summaries on one node by contender, at the level `MANY`."""
    return _measure(contenders, 1, [MANY])[str(MANY)]


def _measure(
    contenders: Sequence[Contender], nodes: int, chosen: Sequence[int]
) -> dict[str, dict[str, Summary]]:
    with ExitStack() as stack:
        group = Group(stack, nodes)
        # Use a process for each level: a contender that hangs with 1,000 may work with 8.
        lanes = [
            lane
            for level in chosen
            for lane in start(
                stack,
                [each for each in contenders if level in levels(each)],
                group,
                concurrency=level,
            )
        ]
        rounds(f"in flight, N = {nodes}", lanes, max(1, ROUNDS // 2))
        return {
            str(level): {
                lane.contender.name: lane.summary() for lane in lanes if lane.concurrency == level
            }
            for level in chosen
        }
