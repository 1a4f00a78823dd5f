"""One cycle at a time while some of five nodes are frozen, killed or slow, and on healthy nodes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bench.contenders import present
from bench.delay import slow_urls
from bench.group import Group
from bench.names import FLOOR_ALL
from bench.turns import Summary, rounds, start, summaries, try_all

SLOW_MILLISECONDS = 50


@dataclass(frozen=True)
class Fault:
    """A fault, and the indices of the affected nodes."""

    name: str
    frozen: Sequence[int] = ()
    killed: Sequence[int] = ()
    slow: Sequence[int] = ()

    def prepare(self, stack: ExitStack) -> Group:
        """Starts the nodes. Slow nodes are slow from the beginning."""
        group = Group(stack)
        group.urls = slow_urls(stack, group, self.slow, SLOW_MILLISECONDS)
        return group

    def strike(self, group: Group) -> None:
        """Freezes and kills nodes, after all contenders have connected."""
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


def measure() -> dict[str, dict[str, dict[str, Summary]]]:
    """Returns the summaries by fault, by "healthy" or "faulty", and by contender."""
    return {fault.name: _measure(fault) for fault in FAULTS}


def _measure(fault: Fault) -> dict[str, dict[str, Summary]]:
    # Contenders that wait for all nodes cannot work with a faulty one.
    able = [each for each in present() if not each.needs_one_node and each.name != FLOOR_ALL]
    with ExitStack() as stack:
        group = Group(stack)
        # The relays of slow nodes use CPU time. So healthy nodes have relays, too, without a delay.
        group.urls = slow_urls(stack, group, fault.slow, 0)
        healthy = start(stack, able, group)
        group = fault.prepare(stack)
        faulty = start(stack, able, group, counts_cpu=False)
        fault.strike(group)
        try_all(faulty)  # contenders that hang do so at the same time
        rounds(fault.name, healthy + faulty)
        return {"healthy": summaries(healthy), "faulty": summaries(faulty)}
