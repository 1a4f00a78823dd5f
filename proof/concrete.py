"""States of plain values: the meaning of the text without a solver (see `logic.py`)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from proof.logic import Function
from proof.state import FIELDS, TIME, TRUTH, State

Domains = Mapping[str, Sequence[Any]]
"""All things of each sort."""


@dataclass(frozen=True)
class Table:
    """A function with finitely many values that differ from a default."""

    entries: Mapping[tuple[Any, ...], Any]
    default: Any
    domains: Domains
    keys: tuple[str, ...]

    def __call__(self, *key: Any) -> Any:
        return self.entries.get(key, self.default)

    def changed(self, key: tuple[Any, ...], value: Any) -> Table:
        """Returns the table with another value at `key`."""
        return Table({**self.entries, key: value}, self.default, self.domains, self.keys)

    def mapped(self, rule: Function) -> Table:
        """Returns the table whose value at every key is `rule(*key)`."""
        keys = itertools.product(*(self.domains[sort] for sort in self.keys))
        entries = {key: rule(*key) for key in keys}
        return Table(entries, self.default, self.domains, self.keys)


DEFAULTS = {TRUTH: False, TIME: Fraction(0)}


def state(domains: Domains, values: Mapping[str, Any]) -> State:
    """Returns a state.

    `values` has dictionaries or functions for fields with keys, and plain values for the others. A
    value that is missing is false, zero or an empty set of nodes.
    """
    tables: dict[str, Any] = {}
    for name, field in FIELDS.items():
        default: Any = frozenset() if field.value == "Nodes" else DEFAULTS.get(field.value, 0)
        value = values.get(name, {} if field.keys else default)
        if isinstance(value, Mapping):
            entries = {key if isinstance(key, tuple) else (key,): one for key, one in value.items()}
            value = Table(entries, default, domains, field.keys)
        tables[name] = value
    return State(tables, quantifier(domains))


def quantifier(domains: Domains) -> Callable[[list[str], Function], bool]:
    """Returns what decides whether a body holds for all things of some sorts."""

    def every(sorts: Iterable[str], body: Function) -> bool:
        return all(
            body(*things) for things in itertools.product(*(domains[sort] for sort in sorts))
        )

    return every
