"""Proves a system: its lemmas, its invariant and its properties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import z3

from proof.assumptions import NAMES, lemmas
from proof.logic import Term, either, negated
from proof.step import apply
from proof.symbolic import Universe
from proof.systems import System


@dataclass(frozen=True)
class Question:
    """A claim: nothing satisfies the terms. `of` is a transition or what else it is about."""

    of: str
    claim: str
    terms: list[Term]


def lemma_questions() -> Iterator[Question]:
    """Yields the lemmas about drift and the guard, and for each that its premises can be met."""
    reals = {name: z3.Real(name) for name in NAMES}
    for lemma in lemmas(reals):
        yield Question("lemma", lemma.name, [*lemma.premises, negated(lemma.conclusion)])


def step_questions(
    system: System, name: str, sizes: Mapping[str, int] | None = None
) -> Iterator[Question]:
    """Yields for each conjunct that the transition keeps it. There are any number of things, or so
    many as `sizes` tells."""
    universe = Universe(sizes)
    s = universe.state()
    transition = system.transitions[name]
    step = apply(transition, s, universe.arguments(transition))
    known = [*system.axioms(s).values(), *(conjunct(s) for conjunct in system.invariant)]
    for conjunct in system.invariant:
        broken = negated(conjunct(step.after))
        yield Question(name, conjunct.__name__, [*known, *step.conditions.values(), broken])


def other_questions(system: System, sizes: Mapping[str, int] | None = None) -> Iterator[Question]:
    """Yields that the invariant holds at the beginning, and that the properties follow from it."""
    s = Universe(sizes).state()
    known = list(system.axioms(s).values())
    for conjunct in system.invariant:
        begin = [*known, *system.initial(s).values(), negated(conjunct(s))]
        yield Question("the beginning", conjunct.__name__, begin)
    invariant = [conjunct(s) for conjunct in system.invariant]
    for claim in system.properties:
        yield Question("property", claim.__name__, [*known, *invariant, negated(claim(s))])


def together(questions: Sequence[Question]) -> list[Term]:
    """Returns the terms of one question that stands for several, whose terms differ in the last
    one only: nothing satisfies them if nothing satisfies any of the questions."""
    known = questions[0].terms[:-1]
    return [*known, either(*(question.terms[-1] for question in questions))]


def questions(system: System) -> Iterator[Question]:
    """Yields all questions about a system."""
    yield from other_questions(system)
    for name in system.transitions:
        yield from step_questions(system, name)
