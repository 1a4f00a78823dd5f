"""Several resources in one lock: the cost of a cycle."""

from __future__ import annotations

from contextlib import ExitStack

from contender import Contender
from group import Group
from parameters import PROGRAMS
from scale.settings import RESOURCES, ROUNDS
from turns import Summary, rounds, start


def measure() -> dict[str, Summary]:
    """Returns the summaries by number of resources."""
    contenders = [
        Contender(
            str(count), "quorlock", "Rust", "sync", [f"{PROGRAMS}/rust-resources", f"{count}"]
        )
        for count in RESOURCES
    ]
    with ExitStack() as stack:
        lanes = start(stack, contenders, Group(stack))
        rounds("several resources", lanes, ROUNDS)
        return {lane.contender.name: lane.summary() for lane in lanes}
