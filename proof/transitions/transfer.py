"""Hand-over: an attempt takes over a lease that its holder has given up.

The code has no TRANSFER yet. This states the rule that it must have.
"""

from __future__ import annotations

from proof.logic import Term, both, changed, implies, negated
from proof.state import State
from proof.step import Step
from proof.transitions.acquiring import may_vote, vote
from proof.transitions.fences import next_fence


def swap(s: State, node: Term, attempt: Term, fence: Term, proposal: Term, resource: Term) -> Step:
    """A node applies TRANSFER: where all keys have the parent's token, it sets the adopter's.

    Rule: none (not built yet)
    """
    parent = s.parent(attempt)
    conditions = {
        **may_vote(s, node, attempt),
        "it takes over a lease": s.adopter(attempt),
        "the node has the parent's keys": s.every(
            lambda resource: implies(s.uses(attempt, resource), s.holds(node, resource, parent))
        ),
        **next_fence(s, node, attempt, fence, proposal, resource),
    }

    def is_left(other: Term, key: Term, a: Term) -> Term:
        return both(s.holds(other, key, a), negated(both(other == node, a == parent)))

    after = vote(s, node, attempt, fence, is_left)
    swapped = changed(s.swapped, (node, attempt), True)
    return Step(conditions, after.but(swapped=swapped))
