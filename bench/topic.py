"""What a topic of the benchmarks consists of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from interop.installing import Ecosystem

from bench.goals import Goal

Results = dict[str, Any]


@dataclass(frozen=True)
class Topic:
    scenarios: Mapping[str, Callable[[], Any]]
    """What is measured, in order. The names are those in `results.json`."""
    peers: Sequence[Ecosystem] = ()
    """The libraries without which the topic cannot be measured."""
    goals: Callable[[Results], Iterable[Goal]] = lambda _: ()
    show: Callable[[Results], str] | None = None
    """Formats the results for the terminal, for a topic that no page is generated for."""
