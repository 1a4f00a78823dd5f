"""Leases that change their mode: downgraded to shared, or upgraded to exclusive."""

from __future__ import annotations

from proof.logic import Term, both, changed, choose, implies, larger, mapped, negated
from proof.state import State
from proof.step import Step
from proof.transitions.acquiring import has_no_other, may_vote, vote
from proof.transitions.fences import next_fence


def shorten(s: State, attempt: Term, end: Term) -> Step:
    """The holder takes its lease to end earlier. Nothing needs that, and the code ends a lease at
    once instead.

    Rule: core/protocol/src/lease.rs give_up
    """
    conditions = {"the end is earlier": end <= s.end(attempt)}
    return Step(conditions, s.but(end=changed(s.end, (attempt,), end)))


def begin_downgrade(s: State, attempt: Term) -> Step:
    """The holder of a valid lease takes it as shared. From now on, DOWNGRADE can arrive at any
    node, at any time, or never.

    Rule: core/src/lock/claim/held.rs begin_downgrade
    """
    conditions = {"the lease is valid": s.valid(attempt)}
    return Step(conditions, s.but(downgraded=changed(s.downgraded, (attempt,), True)))


def downgrade(s: State, node: Term, attempt: Term) -> Step:
    """A node applies DOWNGRADE, perhaps late: it lets readers in beside the lease. So it does when
    it applies another request of a lease that was downgraded.

    Rule: core/protocol/src/node/sharing.rs downgrade
    """
    conditions = {"the lease is shared for its holder": s.downgraded(attempt)}
    return Step(conditions, s.but(yields=changed(s.yields, (node, attempt), True)))


def upgrade(
    s: State,
    node: Term,
    attempt: Term,
    fence: Term,
    proposal: Term,
    resource: Term,
    pause: Term,
) -> Step:
    """A node applies TRANSFER of an upgrade, perhaps late: where the lease is the only reader, it
    sets keys of a new token, which are exclusive. These keys fulfil the promise to the lease. So
    none of them, of whatever mode the lease had it, expires before the key that it replaces. The
    lease may be extended at any time, by as much as it likes.

    Rule: core/protocol/src/node/entry.rs transfer, core/protocol/src/node/sharing.rs is_given
    """
    parent = s.parent(attempt)
    conditions = {
        **may_vote(s, node, attempt, pause),
        "it upgrades a lease": s.upgrader(attempt),
        "the node has the parent's keys": s.every(
            lambda resource: implies(s.uses(attempt, resource), s.holds(node, resource, parent))
        ),
        "no other token is in the way": has_no_other(s, node, attempt, lambda b: b == parent),
        **next_fence(s, node, attempt, fence, proposal, resource),
    }

    def is_left(other: Term, key: Term, a: Term) -> Term:
        return both(s.holds(other, key, a), negated(both(other == node, a == parent)))

    after = vote(s, node, attempt, fence, pause, is_left)

    def expiry(other: Term, key: Term, a: Term) -> Term:
        is_set = both(other == node, a == attempt, s.uses(attempt, key))
        later = larger(after.expires(other, key, a), s.expires(node, key, parent))
        return choose(is_set, later, after.expires(other, key, a))

    return Step(
        conditions,
        after.but(
            expires=mapped(after.expires, expiry),
            stand_in=changed(after.stand_in, (node, parent), attempt),
        ),
    )
