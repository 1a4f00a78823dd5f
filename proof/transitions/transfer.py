"""Hand-over: an attempt takes over a lease that its holder has given up, or gives it back."""

from __future__ import annotations

from proof.logic import Term, both, changed, choose, either, implies, larger, mapped, negated
from proof.state import State
from proof.step import Step
from proof.transitions.acquiring import has_no_other, may_vote, vote
from proof.transitions.fences import next_fence


def swap(
    s: State,
    node: Term,
    attempt: Term,
    fence: Term,
    proposal: Term,
    resource: Term,
    pause: Term,
) -> Step:
    """A node applies TRANSFER: where all keys have the parent's token, it sets the adopter's. In
    shared mode, others may have the keys, too.

    Rule: core/protocol/src/node/entry.rs transfer, core/protocol/src/fence.rs next_fence
    """
    parent = s.parent(attempt)
    conditions = {
        **may_vote(s, node, attempt, pause),
        "it takes over a lease": s.adopter(attempt),
        "the node has the parent's keys": s.every(
            lambda resource: implies(s.uses(attempt, resource), s.holds(node, resource, parent))
        ),
        "no other token is in the way": has_no_other(s, node, attempt, lambda b: b == parent),
        **next_fence(s, node, attempt, fence, proposal, resource),
    }

    def is_left(other: Term, key: Term, a: Term) -> Term:
        return both(s.holds(other, key, a), negated(both(other == node, a == parent)))

    after = vote(s, node, attempt, fence, pause, is_left)
    swapped = changed(s.swapped, (node, attempt), True)
    return Step(conditions, after.but(swapped=swapped))


def give_back(s: State, node: Term, attempt: Term, remaining: Term) -> Step:
    """A node applies GIVE BACK, the undo of TRANSFER: where a key has the adopter's token, it sets
    the parent's again. Sound for any remaining time, as nothing relies on the parent's keys. If no
    time is left, the node deletes the keys instead, which is the step `delete`. After an upgrade,
    the lease may rely on its keys: none of them expires before the key of the upgrade would.

    Rule: core/protocol/src/node/entry.rs give_back
    """
    parent = s.parent(attempt)
    conditions = {
        "it takes over a lease": either(s.adopter(attempt), s.upgrader(attempt)),
        "the client gave it up": s.over(attempt),
        "it was not won": negated(s.won(attempt)),
        "the time is not negative": remaining >= 0,
        "an upgrade was not answered before the lease was detached": negated(
            both(s.upgrader(attempt), s.settled(node, parent), s.over(parent))
        ),
        "no other token is in the way": s.every(
            lambda resource, b: implies(
                both(
                    s.uses(attempt, resource),
                    s.holds(node, resource, attempt),
                    s.holds(node, resource, b),
                    b != attempt,
                    b != parent,
                ),
                both(
                    negated(s.locks(node, resource, parent)),
                    negated(s.locks(node, resource, b)),
                ),
            )
        ),
    }

    def is_back(other: Term, key: Term) -> Term:
        return both(other == node, s.uses(attempt, key), s.holds(node, key, attempt))

    def is_held(other: Term, key: Term, a: Term) -> Term:
        is_left = both(s.holds(other, key, a), negated(both(is_back(other, key), a == attempt)))
        return either(is_left, both(is_back(other, key), a == parent))

    def expiry(other: Term, key: Term, a: Term) -> Term:
        is_set, time = both(is_back(other, key), a == parent), s.node_clock(node) + remaining
        later = larger(time, s.expires(node, key, attempt))
        time = choose(s.upgrader(attempt), later, time)
        return choose(is_set, time, s.expires(other, key, a))

    after = s.but(
        holds=mapped(s.holds, is_held),
        expires=mapped(s.expires, expiry),
        swapped=changed(s.swapped, (node, attempt), False),
        stand_in=changed(
            s.stand_in,
            (node, parent),
            choose(s.stand_in(node, parent) == attempt, parent, s.stand_in(node, parent)),
        ),
    )
    return Step(conditions, after)
