"""States of plain values that change in place, and look only at the things that a step concerns.

The transitions and conjuncts are those of the proof. Evaluated over all attempts of a run, one step
would take minutes. So `Focus` names the things that quantifiers range over and the keys that a
transition may change; `replay.py` chooses them such that all others cannot matter.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from proof.logic import Function
from proof.state import FIELDS, NODES, TRUTH, State

Key = tuple[Any, ...]


@dataclass
class Focus:
    """The things that matter for a step, by sort."""

    things: dict[str, Sequence[Any]] = field(default_factory=dict)
    """What quantifiers range over."""
    touched: dict[str, Sequence[Any]] = field(default_factory=dict)
    """The keys that a transition may change all at once."""

    def every(self, sorts: Iterable[str], body: Function) -> bool:
        """Whether a body holds for all things in focus."""
        for some in itertools.product(*[self.things[sort] for sort in sorts]):
            if body(*some) is not True:
                return False
        return True


class Table:
    """A function with finitely many values that differ from a default."""

    __slots__ = ("default", "entries", "focus", "sorts")

    def __init__(self, sorts: tuple[str, ...], default: Any, focus: Focus) -> None:
        self.entries: dict[Key, Any] = {}
        self.default = default
        self.sorts = sorts
        self.focus = focus

    def __call__(self, *key: Any) -> Any:
        return self.entries.get(key, self.default)

    def changed(self, key: Key, value: Any) -> Changes:
        """Returns the function with another value at `key`."""
        return Changes(self, {key: value})

    def mapped(self, rule: Function) -> Changes:
        """Returns the function whose value at every key that is touched is `rule(*key)`."""
        touched = self.focus.touched
        keys = itertools.product(*[touched[sort] for sort in self.sorts])
        return Changes(self, {key: rule(*key) for key in keys})


class Changes:
    """A table and what a step changes in it."""

    __slots__ = ("changes", "table")

    def __init__(self, table: Table, changes: dict[Key, Any]) -> None:
        self.table = table
        self.changes = changes

    def __call__(self, *key: Any) -> Any:
        if key in self.changes:
            return self.changes[key]
        return self.table.entries.get(key, self.table.default)

    def changed(self, key: Key, value: Any) -> Changes:
        """Returns the function with another value at `key`."""
        return Changes(self.table, {**self.changes, key: value})

    def mapped(self, rule: Function) -> Changes:
        """Returns the function whose value at every key that is touched is `rule(*key)`."""
        mapped = self.table.mapped(rule)
        return Changes(self.table, {**self.changes, **mapped.changes})


def state(focus: Focus, values: dict[str, Any]) -> State:
    """Returns a state. `values` has functions for fields with keys, and plain values for others.
    Where a value is missing, it is false, zero, or a table of these."""
    complete: dict[str, Any] = {}
    for name, each in FIELDS.items():
        default: Any = {TRUTH: False, NODES: frozenset()}.get(each.value, 0)
        missing = Table(each.keys, default, focus) if each.keys else default
        complete[name] = values.get(name, missing)
    return State(complete, focus.every)


def commit(after: State) -> State:
    """Makes the changes of a step the values of the tables. Returns the state after it."""
    changed = {name: value for name, value in after.values.items() if type(value) is Changes}
    for value in changed.values():
        value.table.entries.update(value.changes)
    return after.but(**{name: value.table for name, value in changed.items()})
