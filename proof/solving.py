"""One question to a solver, with a time limit and a second try."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import monotonic

import z3

from proof.logic import Term

LIMIT = 10
"""Seconds for one question and one seed."""

SEEDS = (1, 2)
"""The random seeds, in the order in which they are tried."""


@dataclass(frozen=True)
class Answer:
    """`unsat`: nothing satisfies the terms. `sat`: something does. `unknown`: out of time."""

    result: str
    seconds: float
    tries: int
    model: z3.ModelRef | None = None


def ask(terms: Iterable[Term], limit: int = LIMIT, seeds: Sequence[int] = SEEDS) -> Answer:
    """Asks whether anything satisfies all terms."""
    began, answer = monotonic(), Answer("unknown", 0, 0)
    terms = list(terms)
    for tries, seed in enumerate(seeds, 1):
        solver = z3.Solver()
        solver.set("timeout", limit * 1000)
        solver.set("random_seed", seed)
        solver.add(*terms)
        result = solver.check()
        model = solver.model() if result == z3.sat else None
        answer = Answer(str(result), monotonic() - began, tries, model)
        if answer.result != "unknown":
            break
    return answer
