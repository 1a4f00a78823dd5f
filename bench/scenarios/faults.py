"""One at a time while some of five nodes are frozen, killed or slow, beside healthy ones."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from contender import Contender
from figures import FLOOR_ALL
from group import Group
from slow import slow_urls
from turns import Summary, rounds, start, try_all

SLOW_MILLISECONDS = 50


@dataclass(frozen=True)
class Fault:
    """What is wrong with which nodes."""

    name: str
    frozen: Sequence[int] = ()
    killed: Sequence[int] = ()
    slow: Sequence[int] = ()

    def prepare(self, stack: ExitStack) -> Group:
        """The nodes, of which some may be slow from the beginning."""
        group = Group(stack)
        group.urls = slow_urls(stack, group, self.slow, SLOW_MILLISECONDS)
        return group

    def strike(self, group: Group) -> None:
        """What happens when all are connected."""
        for index in self.frozen:
            group.servers[index].freeze()
        for index in self.killed:
            group.servers[index].kill()


FAULTS = [
    Fault("one frozen", frozen=[2]),
    Fault("two frozen", frozen=[1, 3]),
    Fault("one killed", killed=[2]),
    Fault(f"two slow by {SLOW_MILLISECONDS} ms", slow=[1, 3]),
]


def measure(contenders: Sequence[Contender]) -> dict[str, dict[str, dict[str, Summary]]]:
    """By the fault, "healthy" or "faulty", and the contender."""
    # One that waits for all nodes cannot bear any of this.
    able = [each for each in contenders if not each.needs_one_node and each.name != FLOOR_ALL]
    return {fault.name: _measure(able, fault) for fault in FAULTS}


def _measure(contenders: Sequence[Contender], fault: Fault) -> dict[str, dict[str, Summary]]:
    with ExitStack() as stack:
        healthy = start(stack, contenders, Group(stack))
        group = fault.prepare(stack)
        faulty = start(stack, contenders, group, counts_cpu=False)
        fault.strike(group)
        try_all(faulty)  # so that those that hang do it at the same time
        rounds(fault.name, healthy + faulty)
        return {
            kind: {lane.contender.name: lane.summary() for lane in lanes}
            for kind, lanes in [("healthy", healthy), ("faulty", faulty)]
        }
