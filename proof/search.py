"""Finds real runs: sequences of steps from the beginning, with few things of each sort.

The solver finds the parameters of each step. The run is then repeated on plain values
(`concrete.py`), which must agree in every condition: so the two meanings of the text are compared,
and no run rests on the solver alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import z3

from proof import concrete
from proof.logic import negated
from proof.solving import ask
from proof.state import FIELDS, STATE, State
from proof.step import PARAMETERS, apply
from proof.symbolic import Universe
from proof.systems import Formula, System

SIZES = {
    "Node": 3,
    "Client": 3,
    "Attempt": 3,
    "Extension": 1,
    "Resource": 1,
    "Semaphore": 1,
    "Nodes": 8,
}

LIMIT = 60


@dataclass(frozen=True)
class Found:
    """A run: the state before the first step, and the steps with their arguments."""

    first: State
    steps: Sequence[tuple[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Search:
    """The result of a search: `sat` with a run, `unsat` if there is none, or `unknown`."""

    result: str
    seconds: float
    run: Found | None = None


def search(
    system: System, words: Sequence[str], goal: Formula, sizes: Mapping[str, int] | None = None
) -> Search:
    """Searches a run of these steps, in this order, after which `goal` holds."""
    universe = Universe({**SIZES, **(sizes or {})})
    first = s = universe.state("@0")
    terms = [*system.axioms(s).values(), *system.initial(s).values(), *all_sets(universe, s)]
    taken = []
    for number, word in enumerate(words, 1):
        transition = system.transitions[word]
        arguments = universe.arguments(transition, str(number))
        taken.append((word, arguments))
        step = apply(transition, s, arguments)
        terms += step.conditions.values()
        s, equalities = named(universe, s, step.after, f"@{number}")
        terms += equalities
    answer = ask([*terms, goal(s)], LIMIT)
    run = read(universe, answer.model, first, taken) if answer.model is not None else None
    return Search(answer.result, answer.seconds, run)


def all_sets(universe: Universe, s: State) -> list[Any]:
    """Returns terms that make `Nodes` all sets of nodes. The axioms tell which are majorities."""
    nodes, sets = universe.things["Node"], universe.things["Nodes"]
    terms = []
    for bits, name in enumerate(sets):
        inside = [bool(bits >> at & 1) for at in range(len(nodes))]
        terms += [s.member(node, name) == is_in for node, is_in in zip(nodes, inside, strict=True)]
    return terms


def named(universe: Universe, before: State, after: State, tag: str) -> tuple[State, list[Any]]:
    """Returns the state after a step with a new symbol for each variable that the step changed, and
    what these symbols are equal to."""
    values, terms = dict(after.values), []
    for name, field in STATE.items():
        if after.values[name] is before.values[name]:
            continue
        values[name] = universe.symbol(name + tag, *field.keys, field.value)
        if not field.keys:
            terms.append(values[name] == after.values[name])
            continue
        keys = itertools.product(*(universe.things[sort] for sort in field.keys))
        terms += [values[name](*key) == after.values[name](*key) for key in keys]
    return State(values, after.quantify), terms


def read(
    universe: Universe,
    model: z3.ModelRef,
    first: State,
    taken: Sequence[tuple[str, Mapping[str, Any]]],
) -> Found:
    """Returns the run as plain values."""
    sets = universe.things.get("Nodes", [])
    nodes = universe.things["Node"]

    def plain(term: Any) -> Any:
        value = model.eval(term, model_completion=True)
        if z3.is_bool(value):
            return z3.is_true(value)
        if z3.is_int_value(value):
            return value.as_long()
        if z3.is_rational_value(value):
            return Fraction(value.numerator_as_long(), value.denominator_as_long())
        for bits, name in enumerate(sets):
            if value.eq(name):
                chosen = (node for at, node in enumerate(nodes) if bits >> at & 1)
                return frozenset(map(str, chosen))
        return str(value)

    def table(function: Any, sorts: Sequence[str]) -> dict[Any, Any]:
        keys = itertools.product(*(universe.things[sort] for sort in sorts))
        return {tuple(map(plain, key)): plain(function(*key)) for key in keys}

    values = {
        name: table(first.values[name], field.keys) if field.keys else plain(first.values[name])
        for name, field in FIELDS.items()
    }
    domains = {sort: [plain(thing) for thing in things] for sort, things in universe.things.items()}
    state = concrete.state(domains, values)
    steps = []
    for word, arguments in taken:
        read_arguments = {}
        for name, term in arguments.items():
            sorts = PARAMETERS[name][:-1]
            entries = table(term, sorts) if sorts else plain(term)
            read_arguments[name] = called(entries) if sorts else entries
        steps.append((word, read_arguments))
    return Found(state, steps)


def called(entries: Mapping[Any, Any]) -> Any:
    """Returns the function with these values."""
    return lambda *key: entries[key]


def repeat(system: System, run: Found, goal: Formula) -> list[str]:
    """Repeats a run on plain values. Returns what does not hold that should, as text."""
    s, wrong = run.first, []
    wrong += [f"axiom: {name}" for name, holds in system.axioms(s).items() if not holds]
    wrong += [f"beginning: {name}" for name, holds in system.initial(s).items() if not holds]
    for number, (word, arguments) in enumerate(run.steps, 1):
        step = apply(system.transitions[word], s, arguments)
        wrong += [
            f"step {number}, {word}: {name}"
            for name, holds in step.conditions.items()
            if holds is not True
        ]
        s = step.after
    return wrong if goal(s) is True else [*wrong, "the goal"]


def broken(system: System, run: Found) -> list[str]:
    """Returns the conjuncts and properties that fail in a run, with the number of the first step
    after which each does."""
    s, found = run.first, {}
    states = [s]
    for word, arguments in run.steps:
        s = apply(system.transitions[word], s, arguments).after
        states.append(s)
    for number, state in enumerate(states):
        for claim in (*system.invariant, *system.properties):
            if claim.__name__ not in found and negated(claim(state)):
                found[claim.__name__] = number
    return [f"{name} after step {number}" for name, number in found.items()]
