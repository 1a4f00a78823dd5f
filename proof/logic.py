"""The connectives in which transitions, conjuncts and properties are written.

One text has two meanings. Applied to terms of the solver, these functions build formulas, which
`check.py` proves. Applied to plain values (`bool`, `int`, `Fraction`), they compute, so a log of
real steps can be checked without a solver. This module does not import the solver: it asks the
terms, which bring their own connectives (`symbolic.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

Term = Any
"""A truth value, number, node and so on: a plain value or a term of the solver."""

Function = Callable[..., Term]


class Formulas(Protocol):
    """The connectives of the solver."""

    def both(self, *terms: Term) -> Term: ...
    def either(self, *terms: Term) -> Term: ...
    def negated(self, term: Term) -> Term: ...
    def choose(self, condition: Term, yes: Term, no: Term) -> Term: ...


_solver: Formulas | None = None


def use(solver: Formulas) -> None:
    """Sets the connectives for terms that are not plain truth values."""
    global _solver
    _solver = solver


def _formulas() -> Formulas:
    if _solver is None:
        raise TypeError("a term of the solver, but no solver is in use")
    return _solver


def both(*terms: Term) -> Term:
    """Whether all terms hold."""
    for term in terms:
        if term is False:
            return False
    open_terms = [term for term in terms if term is not True]
    return _formulas().both(*open_terms) if open_terms else True


def either(*terms: Term) -> Term:
    """Whether any term holds."""
    for term in terms:
        if term is True:
            return True
    open_terms = [term for term in terms if term is not False]
    return _formulas().either(*open_terms) if open_terms else False


def negated(term: Term) -> Term:
    """Whether the term does not hold."""
    if term is True or term is False:
        return not term
    return _formulas().negated(term)


def implies(condition: Term, consequence: Term) -> Term:
    """Whether the consequence holds if the condition does."""
    return either(negated(condition), consequence)


def choose(condition: Term, yes: Term, no: Term) -> Term:
    """Returns `yes` if the condition holds, else `no`."""
    if condition is True or condition is False:
        return yes if condition else no
    return _formulas().choose(condition, yes, no)


def larger(one: Term, other: Term) -> Term:
    """Returns the larger of two numbers."""
    return choose(one >= other, one, other)


def changed(function: Function, key: tuple[Term, ...], value: Term) -> Function:
    """Returns the function that has `value` at `key`, and is otherwise the same."""
    change = getattr(function, "changed", None)
    if change is not None:
        return change(key, value)  # type: ignore[no-any-return]

    def after(*at: Term) -> Term:
        is_key = both(*(one == other for one, other in zip(at, key, strict=True)))
        return choose(is_key, value, function(*at))

    return after


def mapped(function: Function, rule: Function) -> Function:
    """Returns the function whose value at every key is `rule(*key)`."""
    return getattr(function, "mapped", lambda rule: rule)(rule)  # type: ignore[no-any-return]
