"""What holds in every reachable state, about leases that are downgraded or upgraded."""

from __future__ import annotations

from proof.logic import Term, both, either, implies
from proof.state import State


def downgrades_are_asked(s: State) -> Term:
    """Nodes let readers in only beside leases that are shared for their holders."""
    return s.every(
        lambda node, a: both(
            implies(s.yields(node, a), s.downgraded(a)), implies(s.downgraded(a), s.won(a))
        )
    )


def only_upgrades_stand_in(s: State) -> Term:
    """The keys that fulfil a promise are the lease's own, or those of its upgrade."""
    return s.every(
        lambda node, a: implies(
            s.promised(node, a),
            either(
                s.stand_in(node, a) == a,
                both(
                    s.won(a),
                    s.upgrader(s.stand_in(node, a)),
                    s.parent(s.stand_in(node, a)) == a,
                ),
            ),
        )
    )


def upgraded_leases_have_ended(s: State) -> Term:
    """Only leases are upgraded, and a lease has ended when its upgrade is won."""
    return s.every(
        lambda a: both(
            implies(both(s.upgrader(a), s.sent(a)), s.won(s.parent(a))),
            implies(both(s.upgrader(a), s.won(a)), s.over(s.parent(a))),
        )
    )


CONJUNCTS = (
    downgrades_are_asked,
    only_upgrades_stand_in,
    upgraded_leases_have_ended,
)
