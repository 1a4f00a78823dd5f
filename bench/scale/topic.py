"""How the cost of locks grows with the number of leases, resources, processes and nodes."""

from __future__ import annotations

from contextlib import ExitStack

from bench.contenders import OWN, rust
from bench.group import Group
from bench.names import RUST
from bench.scale import distinct, held, processes
from bench.settings import pick
from bench.topic import Topic
from bench.turns import Summary, compare, rounds, start

RESOURCES = pick([1, 2, 4, 8, 16, 32, 64], [1, 64])
"""The numbers of resources in one lock."""
COUNTS = pick(range(1, 10), [1, 9])
"""The numbers of nodes."""
ROUNDS = pick(8, 1)


def resources() -> dict[str, Summary]:
    """Returns the summaries of a cycle by number of resources in one lock."""
    contenders = [rust(str(count), "sync", "rust-resources", str(count)) for count in RESOURCES]
    return compare("several resources", contenders, count=ROUNDS)


def nodes() -> dict[str, Summary]:
    """Returns the summaries of a cycle by number of nodes."""
    with ExitStack() as stack:
        lanes = [
            lane for count in COUNTS for lane in start(stack, [OWN[RUST]], Group(stack, count))
        ]
        rounds("numbers of nodes", lanes, ROUNDS)
        return {str(len(lane.group.meters)): lane.summary() for lane in lanes}


TOPIC = Topic(
    {
        "held": held.measure,
        "distinct": distinct.measure,
        "processes": processes.measure,
        "resources": resources,
        "nodes": nodes,
    }
)
