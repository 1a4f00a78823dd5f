"""Leases and rounds end, keys are deleted, and held leases are repaired."""

from __future__ import annotations

from proof.logic import Term, both, changed, choose, either, implies, mapped, negated
from proof.state import State
from proof.step import Step
from proof.transitions.fences import keep


def finish(s: State, attempt: Term) -> Step:
    """A client gives up a round or a lease, for any reason: released, lost, cancelled, closed.

    Rule: core/protocol/src/round.rs lose, core/protocol/src/round.rs abandon,
        core/protocol/src/lease.rs finish, core/protocol/src/claim.rs undo
    """
    conditions = {"the round has begun": s.sent(attempt)}
    return Step(conditions, s.but(over=changed(s.over, (attempt,), True)))


def is_given_up(s: State, attempt: Term) -> dict[str, Term]:
    """The conditions under which no lease relies on the attempt's keys."""
    return {
        "the client gave it up": s.over(attempt),
        "a lease that it was to upgrade has ended": implies(
            s.upgrader(attempt), s.over(s.parent(attempt))
        ),
    }


def delete(s: State, node: Term, resource: Term, attempt: Term) -> Step:
    """A node applies RELEASE or UNDO, perhaps late: it deletes a key that has the attempt's token.
    A lost upgrade is undone by GIVE BACK instead, while the shared lease may rely on its keys.

    Rule: core/protocol/src/node/entry.rs release
    """
    return Step(
        is_given_up(s, attempt), s.but(holds=changed(s.holds, (node, resource, attempt), False))
    )


def retain(s: State, node: Term, resource: Term, attempt: Term, remaining: Term) -> Step:
    """A node applies a RELEASE that keeps the key, perhaps late: it expires after another time.
    Sound for any time, as nothing relies on a key whose lease was given up.

    Rule: core/protocol/src/node/entry.rs keep
    """
    conditions = {
        **is_given_up(s, attempt),
        "the node has the key": s.holds(node, resource, attempt),
        "the time is not negative": remaining >= 0,
    }
    key = (node, resource, attempt)
    return Step(conditions, s.but(expires=changed(s.expires, key, s.node_clock(node) + remaining)))


def may_repair(s: State, node: Term, attempt: Term) -> Term:
    """Whether a node can set missing keys of the attempt beside all others that it has."""
    return s.every(
        lambda resource, b: implies(
            both(s.uses(attempt, resource), s.holds(node, resource, b), b != attempt),
            both(
                negated(s.locks(node, resource, attempt)),
                negated(s.locks(node, resource, b)),
            ),
        )
    )


def heal(s: State, node: Term, attempt: Term, remaining: Term) -> Step:
    """A node applies HEAL, perhaps late: it sets missing keys of a lease again, if no other token
    is in the way. Other readers are not in the way of a reader. Sound for any remaining time, as a
    repaired node promises nothing. Where the parent's token is in the way of an adopter, HEAL first
    deletes it, which is the step `delete`.

    Rule: core/protocol/src/node/entry.rs heal, core/protocol/src/node/record.rs heal
    """
    conditions = {
        "it is a lease": s.won(attempt),
        "no other token is in the way": may_repair(s, node, attempt),
        "the time is not negative": remaining >= 0,
        "it was not answered before the lease was detached": negated(
            both(s.settled(node, attempt), s.over(attempt))
        ),
    }

    def is_set(other: Term, resource: Term, a: Term) -> Term:
        return both(other == node, a == attempt, s.uses(attempt, resource), is_free(resource))

    def is_free(resource: Term) -> Term:
        return negated(s.holds(node, resource, attempt))

    expiry = s.node_clock(node) + remaining
    after = keep(s, node, attempt, s.fence(attempt), is_free).but(
        holds=mapped(s.holds, lambda *at: either(is_set(*at), s.holds(*at))),
        expires=mapped(s.expires, lambda *at: choose(is_set(*at), expiry, s.expires(*at))),
    )
    return Step(conditions, after)
