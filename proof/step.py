"""What a transition is: a function of a state and named parameters that returns a `Step`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from proof.logic import Term, both
from proof.state import (
    ATTEMPT,
    CLIENT,
    EXTENSION,
    NODE,
    NODES,
    RESOURCE,
    TIME,
    TRUTH,
    State,
)

PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "node": (NODE,),
    "client": (CLIENT,),
    "attempt": (ATTEMPT,),
    "extension": (EXTENSION,),
    "resource": (RESOURCE,),
    "quorum": (NODES,),
    "keepers": (NODES,),
    "storers": (NODES,),
    "weighed": (NODES,),
    "now": (TIME,),
    "clock": (TIME,),
    "fence": (TIME,),
    "end": (TIME,),
    "proposal": (TIME,),
    "counter": (TIME,),
    "remaining": (TIME,),
    "pause": (TIME,),
    "boot": (TIME,),
    "uptime": (TIME,),
    "is_reported": (TRUTH,),
    "node_clocks": (NODE, TIME),
    "walls": (NODE, TIME),
    "client_clocks": (CLIENT, TIME),
    "guard_clocks": (CLIENT, TIME),
    "remembered": (RESOURCE, ATTEMPT, TRUTH),
    "expiries": (RESOURCE, ATTEMPT, TIME),
    "counters": (RESOURCE, TIME),
}
"""What each parameter of a transition is: a thing, a number, or a function (its value is last)."""

ASSUMED = "assumed: "
"""Begins the name of a condition that no rule of the lock ensures: the surroundings must."""


@dataclass(frozen=True)
class Step:
    """Under which conditions a transition can happen, by name, and the state after it."""

    conditions: Mapping[str, Term]
    after: State

    def can_happen(self) -> Term:
        """Whether all conditions hold."""
        return both(*self.conditions.values())


Transition = Callable[..., Step]


def parameters(transition: Transition) -> dict[str, tuple[str, ...]]:
    """Returns what the parameters of a transition are, without the state, by name."""
    names = list(inspect.signature(transition).parameters)[1:]
    return {name: PARAMETERS[name] for name in names}


def apply(transition: Transition, state: State, arguments: Mapping[str, Any]) -> Step:
    """Applies a transition to a state."""
    return transition(state, **arguments)
