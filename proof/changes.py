"""Ways to break a system on purpose."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from proof.logic import Term
from proof.state import State
from proof.step import Step
from proof.systems import System


def edited(system: System, name: str, edit: Callable[..., Step]) -> System:
    """Returns the system with another transition: `edit` gets the step as it should be, the state
    and the arguments."""
    original = system.transitions[name]

    @functools.wraps(original)
    def transition(s: State, **arguments: Any) -> Step:
        return edit(original(s, **arguments), s, **arguments)

    return replace(system, transitions={**system.transitions, name: transition})


def without(name: str, *conditions: str) -> Callable[[System], System]:
    """A transition happens without some of its conditions."""
    return but(name, lambda s, **_: dict.fromkeys(conditions, True))


def but(
    name: str,
    conditions: Callable[..., dict[str, Term]] | None = None,
    after: Callable[..., State] | None = None,
) -> Callable[[System], System]:
    """A transition has other conditions, of the names returned, or another state after it."""

    def edit(step: Step, s: State, **arguments: Any) -> Step:
        others = conditions(s, **arguments) if conditions else {}
        if not others.keys() <= step.conditions.keys():
            raise KeyError(f"no conditions of {name}: {others.keys() - step.conditions.keys()}")
        state = after(step.after, s, **arguments) if after else step.after
        return Step({**step.conditions, **others}, state)

    return lambda system: edited(system, name, edit)


def both_changes(*changes: Callable[[System], System]) -> Callable[[System], System]:
    """Several changes at once."""
    return lambda system: functools.reduce(lambda broken, change: change(broken), changes, system)


def without_axiom(name: str) -> Callable[[System], System]:
    """An assumption about the constants is dropped."""
    return lambda system: replace(system, dropped=system.dropped | {name})
