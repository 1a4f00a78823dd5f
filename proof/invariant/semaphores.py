"""What holds in every reachable state, about the slots of semaphores. Those of an adopter are the
giver's."""

from __future__ import annotations

from proof.logic import Term, implies
from proof.state import State


def slots_are_below_limits(s: State) -> Term:
    """The slots of each round are below its limit."""
    return s.every(lambda a: implies(s.sent(a), s.is_in_limit(a)))


def slots_have_one_key(s: State) -> Term:
    """Two clients have the same key for the same slot."""
    return s.every(lambda a: implies(s.sent(a), s.has_usual_keys(a)))


CONJUNCTS = (slots_are_below_limits, slots_have_one_key)
