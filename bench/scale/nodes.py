"""Different numbers of nodes: the cost of a cycle."""

from __future__ import annotations

from contextlib import ExitStack

from figures import RUST
from group import Group
from roster import OWN
from scale.settings import COUNTS, ROUNDS
from turns import Summary, rounds, start


def measure() -> dict[str, Summary]:
    """Returns the summaries by number of nodes."""
    contender = next(each for each in OWN if each.name == RUST)
    with ExitStack() as stack:
        lanes = [
            lane for count in COUNTS for lane in start(stack, [contender], Group(stack, count))
        ]
        rounds("numbers of nodes", lanes, ROUNDS)
        return {str(len(lane.group.meters)): lane.summary() for lane in lanes}
