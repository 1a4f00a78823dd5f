"""One question to the solver, with a limit and a second try."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import monotonic

import z3

from proof.logic import Term

LIMIT = 60
"""The limit of a question with one seed, in millions of z3's own units of work. A second is about
six million. Unlike a time limit, this has the same result on a busy machine."""

SEEDS = (1, 2)
"""The random seeds, in the order in which they are tried."""


@dataclass(frozen=True)
class Answer:
    """`unsat`: nothing satisfies the terms. `sat`: something does. `unknown`: at the limit."""

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
        solver.set("rlimit", limit * 1_000_000)
        solver.set("random_seed", seed)
        solver.add(*terms)
        result = solver.check()
        model = solver.model() if result == z3.sat else None
        answer = Answer(str(result), monotonic() - began, tries, model)
        if answer.result != "unknown":
            break
    return answer
