"""What is proved: each property follows from the invariant."""

from __future__ import annotations

from proof.logic import Term, both, either, implies, negated
from proof.state import State


def exclusion(s: State) -> Term:
    """Two different leases of one resource are valid at the same time only if both are shared."""
    return s.every(
        lambda resource, a, b: implies(
            both(s.valid(a), s.valid(b), a != b, s.uses(a, resource), s.uses(b, resource)),
            both(negated(s.writes(a, resource)), negated(s.writes(b, resource))),
        )
    )


def usual_slots(s: State) -> Term:
    """The slots of a valid lease are below the limit that its client has, and their keys are those
    that all clients use. `counting.py` shows what follows for semaphores."""
    return s.every(lambda a: implies(s.valid(a), both(s.is_in_limit(a), s.has_usual_keys(a))))


def fences(s: State) -> Term:
    """Of two leases of one resource that were not both granted in shared mode, the one that is won
    later has the larger fence."""
    return s.every(
        lambda resource, a, b: implies(
            both(
                s.won(a),
                s.won(b),
                s.place(a) < s.place(b),
                s.uses(a, resource),
                s.uses(b, resource),
                either(s.writer(a, resource), s.writer(b, resource)),
            ),
            s.fence(a) < s.fence(b),
        )
    )


def unique_fences(s: State) -> Term:
    """Leases of one resource have different fences, unless both were granted in shared mode."""
    return s.every(
        lambda a, b: implies(both(s.conflict(a, b), s.won(a), s.won(b)), s.fence(a) != s.fence(b))
    )


def valid_fence(s: State) -> Term:
    """A valid lease has the largest fence of all leases that conflict with it, whenever those were
    won. So storage that checks fences accepts its writes."""
    return s.every(
        lambda a, b: implies(both(s.contend(a, b), s.valid(a), s.won(b)), s.fence(b) < s.fence(a))
    )


def one_valid_adopter(s: State) -> Term:
    """At most one adopter of a lease is valid, if one of them is exclusive."""
    return s.every(
        lambda resource, a, b: negated(
            both(
                s.valid(a),
                s.valid(b),
                a != b,
                s.adopter(a),
                s.adopter(b),
                s.parent(a) == s.parent(b),
                s.uses(a, resource),
                s.uses(b, resource),
                s.writes(a, resource),
            )
        )
    )


def parents_end(s: State) -> Term:
    """While an adopter or upgrade is valid, the lease that it takes over is not."""
    return s.every(
        lambda a: implies(
            both(either(s.adopter(a), s.upgrader(a)), s.valid(a)), negated(s.valid(s.parent(a)))
        )
    )


def adopters_fence(s: State) -> Term:
    """An adopter or upgrade has a larger fence than the lease that it takes over, in any mode."""
    return s.every(
        lambda a: implies(
            both(either(s.adopter(a), s.upgrader(a)), s.won(a)),
            s.fence(s.parent(a)) < s.fence(a),
        )
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
