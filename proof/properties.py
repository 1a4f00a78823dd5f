"""What is proved: each property follows from the invariant."""

from __future__ import annotations

from proof.logic import Term, both, implies, negated
from proof.state import State


def exclusion(s: State) -> Term:
    """Two different leases of one resource are valid at the same time only if both are shared."""
    return s.every(
        lambda resource, a, b: implies(
            both(s.valid(a), s.valid(b), a != b, s.uses(a, resource), s.uses(b, resource)),
            both(negated(s.writer(a)), negated(s.writer(b))),
        )
    )


def distinct_slots(s: State) -> Term:
    """Two valid permits of a semaphore have different slots, so there are as many slots at least.

    A slot is a resource, and a permit an exclusive attempt for one: `first`.
    """
    return s.every(
        lambda a, b: implies(
            both(s.valid(a), s.valid(b), a != b, s.writer(a), s.writer(b)),
            s.first(a) != s.first(b),
        )
    )


def fences(s: State) -> Term:
    """Of two leases that conflict, the one that is won later has the larger fence."""
    return s.every(
        lambda resource, a, b: implies(
            both(
                s.won(a),
                s.won(b),
                s.place(a) < s.place(b),
                s.uses(a, resource),
                s.uses(b, resource),
            ),
            implies(
                negated(both(negated(s.writer(a)), negated(s.writer(b)))),
                s.fence(a) < s.fence(b),
            ),
        )
    )


def unique_fences(s: State) -> Term:
    """No two leases that conflict have the same fence."""
    return s.every(
        lambda a, b: implies(both(s.conflict(a, b), s.won(a), s.won(b)), s.fence(a) != s.fence(b))
    )


def valid_fence(s: State) -> Term:
    """A valid lease has the largest fence of all leases that conflict with it, whenever those were
    won. So storage that checks fences accepts its writes."""
    return s.every(
        lambda a, b: implies(both(s.conflict(a, b), s.valid(a), s.won(b)), s.fence(b) < s.fence(a))
    )


def one_valid_adopter(s: State) -> Term:
    """At most one adopter of a lease is valid, and the lease itself is not any more."""
    return s.every(
        lambda a, b: both(
            negated(
                both(
                    s.valid(a),
                    s.valid(b),
                    a != b,
                    s.adopter(a),
                    s.adopter(b),
                    s.parent(a) == s.parent(b),
                )
            ),
            implies(both(s.adopter(a), s.valid(a)), negated(s.valid(s.parent(a)))),
        )
    )


def adopters_fence(s: State) -> Term:
    """An adopter has a larger fence than the lease that it takes over."""
    return s.every(
        lambda a: implies(both(s.adopter(a), s.won(a)), s.fence(s.parent(a)) < s.fence(a))
    )


def one_adopter(s: State) -> Term:
    """At most one adopter of a lease ever wins, unless nodes lose hand-overs."""
    return s.every(
        lambda a, b: implies(
            both(
                negated(s.rewinds),
                s.won(a),
                s.won(b),
                s.adopter(a),
                s.adopter(b),
                s.parent(a) == s.parent(b),
            ),
            a == b,
        )
    )
