"""Quorlock in each language, raw sockets and other libraries."""

from __future__ import annotations

from bench import contenders
from bench.performance import cycles, faults, holding, startup
from bench.settings import CYCLES, ROUNDS
from bench.topic import Topic


def _described() -> dict[str, dict[str, str]]:
    return {
        each.name: {"kind": each.kind, "language": each.language, "form": each.form}
        for each in contenders.present()
    }


TOPIC = Topic(
    {
        "rounds": lambda: ROUNDS,
        "cycles": lambda: CYCLES,
        "contenders": _described,
        "missing": lambda: sorted(contenders.reasons()),
        "one at a time": cycles.one_at_a_time,
        "in flight": cycles.in_flight,
        "in flight, one node": cycles.in_flight_one_node,
        "contention": cycles.contention,
        "round trips": cycles.round_trips,
        "faults": faults.measure,
        "start": startup.measure,
        "memory": holding.memory,
        "held": holding.held,
    }
)
