"""States of terms of the solver z3 (see `logic.py`)."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Mapping
from typing import Any

import z3

from proof import logic
from proof.logic import Function, Term
from proof.state import CONSTANTS, FIELDS, NUMBER, TIME, TRUTH, State
from proof.step import PARAMETERS


class _Connectives:
    both = staticmethod(z3.And)
    either = staticmethod(z3.Or)
    negated = staticmethod(z3.Not)
    choose = staticmethod(z3.If)


logic.use(_Connectives())


class Universe:
    """The sorts, and states over them. Without sizes, there are any number of things of each sort;
    with sizes, exactly so many."""

    _numbers = itertools.count()
    """Numbers the universes: the names of finite sorts must differ."""

    def __init__(self, sizes: Mapping[str, int] | None = None) -> None:
        kinds = {sort for field in FIELDS.values() for sort in (*field.keys, field.value)}
        self.sorts: dict[str, Any] = {
            TIME: z3.RealSort(),
            TRUTH: z3.BoolSort(),
            NUMBER: z3.IntSort(),
        }
        self.things: dict[str, list[Any]] = {}
        universe = next(self._numbers)
        for sort in sorted(kinds - self.sorts.keys()):
            if sizes is None:
                self.sorts[sort] = z3.DeclareSort(sort)
            else:
                names = [f"{sort}{number}" for number in range(sizes[sort])]
                self.sorts[sort], self.things[sort] = z3.EnumSort(f"{sort}_{universe}", names)
        self.is_finite = sizes is not None
        self._fresh = 0

    def symbol(self, name: str, *signature: str) -> Any:
        """Returns a term or function of that name; the sort of the value comes last."""
        sorts = [self.sorts[kind] for kind in signature]
        return z3.Function(name, *sorts) if len(sorts) > 1 else z3.Const(name, *sorts)

    def state(self, tag: str = "") -> State:
        """Returns a state about which nothing is known. States share their constants."""
        values = {
            name: self.symbol(name if name in CONSTANTS else name + tag, *field.keys, field.value)
            for name, field in FIELDS.items()
        }
        return State(values, self.every)

    def arguments(self, transition: Function, tag: str = "") -> dict[str, Any]:
        """Returns arguments for a transition about which nothing is known."""
        names = list(inspect.signature(transition).parameters)[1:]
        return {name: self.symbol(f"{name}?{tag}", *PARAMETERS[name]) for name in names}

    def every(self, sorts: list[str], body: Function) -> Term:
        """Whether a body holds for all things of some sorts."""
        if self.is_finite:
            products = itertools.product(*(self.things[sort] for sort in sorts))
            return logic.both(*(body(*things) for things in products))
        names = inspect.signature(body).parameters
        self._fresh += 1
        bound = [
            z3.Const(f"{name}!{self._fresh}", self.sorts[sort])
            for name, sort in zip(names, sorts, strict=True)
        ]
        inner = body(*bound)
        return inner if isinstance(inner, bool) else z3.ForAll(bound, inner)
