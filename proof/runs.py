"""Real runs from the beginning: they show that each transition can happen, and that the rules do
not exclude what the lock is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from proof.logic import Term, both, implies, negated
from proof.state import State
from proof.systems import GUARD, KEPT, MEMORY, Formula, System

ROUND = "begin_round grant grant count_vote count_vote fix_fence win"
"""A round that two nodes of three grant."""

LOOKS = "look look"

UPGRADE = "begin_round upgrade upgrade count_vote count_vote fix_fence"
"""The round of an upgrade that two nodes grant, up to the decision."""

EXTENSION = "begin_extension tick confirm confirm count_confirmation count_confirmation extend"


def violates(claim: Formula) -> Formula:
    """Whether a property is violated."""
    return lambda s: negated(claim(s))


def some_valid(s: State) -> Term:
    """Some lease is valid."""
    return negated(s.every(lambda a: negated(s.valid(a))))


def two_won(s: State) -> Term:
    """Two rounds that conflict were won."""
    return negated(s.every(lambda a, b: negated(both(s.conflict(a, b), s.won(a), s.won(b)))))


def two_shared(s: State) -> Term:
    """Two shared leases of one resource are valid."""
    return negated(
        s.every(
            lambda resource, a, b: negated(
                both(
                    s.valid(a),
                    s.valid(b),
                    a != b,
                    s.uses(a, resource),
                    s.uses(b, resource),
                )
            )
        )
    )


def shared_after_exclusive(s: State) -> Term:
    """Two leases of one resource are valid, one of which was granted exclusively."""
    return negated(
        s.every(lambda a, b: negated(both(s.conflict(a, b), s.valid(a), s.valid(b), a != b)))
    )


def mixed(s: State) -> Term:
    """Two leases are valid that share one resource, and one of which excludes the other nowhere
    but could elsewhere."""
    return negated(
        s.every(
            lambda resource, a, b: negated(
                both(
                    s.valid(a),
                    s.valid(b),
                    a != b,
                    s.uses(a, resource),
                    s.uses(b, resource),
                    s.writes(a, s.first(a)),
                )
            )
        )
    )


def upgraded(s: State) -> Term:
    """An upgrade is valid."""
    return negated(s.every(lambda a: negated(both(s.valid(a), s.upgrader(a)))))


def outlives_upgrade(s: State) -> Term:
    """A lease is valid, and two nodes have only keys of its upgrade, which have outlived their own
    ttl."""
    return negated(
        s.every(
            lambda node, other, a: negated(
                both(
                    node != other,
                    s.upgrader(a),
                    s.valid(s.parent(a)),
                    s.now > s.sent_at(a) + s.ttl(a),
                    s.holds(node, s.first(a), a),
                    s.holds(other, s.first(a), a),
                    s.node_clock(node) < s.expires(node, s.first(a), a),
                )
            )
        )
    )


def shared_adopted(s: State) -> Term:
    """An adopter is valid, and another lease of the same resource."""
    return negated(
        s.every(
            lambda resource, a, b: negated(
                both(
                    s.valid(a),
                    s.valid(b),
                    a != b,
                    s.adopter(a),
                    s.uses(a, resource),
                    s.uses(b, resource),
                )
            )
        )
    )


def all_permits(s: State) -> Term:
    """All three slots of a semaphore are permits of exclusive leases of clients with the limits 1
    and 3, one of which has two."""
    return both(
        s.every(lambda resource, second: s.semaphore(resource) == s.semaphore(second)),
        s.every(
            lambda resource: negated(
                s.every(
                    lambda a: negated(both(s.valid(a), s.uses(a, resource), s.writes(a, resource)))
                )
            )
        ),
        negated(
            s.every(
                lambda a, b: negated(both(s.valid(a), s.valid(b), s.limit(a) == 1, s.limit(b) == 3))
            )
        ),
        s.every(lambda a: implies(s.valid(a), s.limit(a) <= 3)),
    )


def two_permits(s: State) -> Term:
    """A lease is valid that has the slots of two others, which did not exclude each other."""
    return negated(
        s.every(
            lambda a, b, c: negated(
                both(
                    s.won(a),
                    s.won(b),
                    a != b,
                    s.excludes(a, c),
                    s.excludes(b, c),
                    negated(s.conflict(a, b)),
                    s.valid(c),
                )
            )
        )
    )


def adopted(s: State) -> Term:
    """An adopter is valid."""
    return negated(s.every(lambda a: negated(both(s.valid(a), s.adopter(a)))))


def returned(s: State) -> Term:
    """A node has a key."""
    return negated(s.every(lambda node, resource, a: negated(s.holds(node, resource, a))))


def two_guards(s: State) -> Term:
    """Two clients with different guards have won leases that conflict."""
    return negated(
        s.every(
            lambda a, b: negated(
                both(
                    s.conflict(a, b),
                    s.won(a),
                    s.won(b),
                    s.wait(s.client(a)) < s.wait(s.client(b)),
                )
            )
        )
    )


@dataclass(frozen=True)
class Run:
    """Steps that must be possible, in this order, and what must hold after them."""

    name: str
    system: System
    words: str
    goal: Formula
    sizes: Mapping[str, int] = field(default_factory=dict)


RUNS = (
    Run(
        "a lease, and another after its release",
        MEMORY,
        f"{ROUND} finish delete delete {ROUND}",
        two_won,
    ),
    Run(
        "a lease, and another after its end", MEMORY, f"{ROUND} tick expire expire {ROUND}", two_won
    ),
    Run(
        "a lease, and another after its released keys were kept",
        MEMORY,
        f"{ROUND} finish retain tick expire expire {ROUND}",
        two_won,
    ),
    Run("an extended lease", MEMORY, f"{ROUND} {EXTENSION} tick", some_valid),
    Run("two shared leases", MEMORY, f"{ROUND} {ROUND}", two_shared),
    Run(
        "an exclusive lease after two shared ones",
        GUARD,
        f"{LOOKS} {LOOKS} {ROUND} {ROUND} finish finish delete delete delete delete {ROUND}",
        lambda s: negated(
            s.every(
                lambda a, b, c: negated(
                    both(
                        s.excludes(c, a),
                        s.excludes(c, b),
                        a != b,
                        s.won(a),
                        s.won(b),
                        s.valid(c),
                    )
                )
            )
        ),
    ),
    Run(
        "a lease that is exclusive for one resource and shared for another",
        MEMORY,
        f"{ROUND} {ROUND}",
        mixed,
        {"Resource": 2},
    ),
    Run(
        "a lease that is downgraded, and another beside it",
        GUARD,
        f"{LOOKS} {LOOKS} {ROUND} begin_downgrade downgrade downgrade {ROUND}",
        shared_after_exclusive,
    ),
    Run(
        "a lease that is upgraded",
        GUARD,
        f"{LOOKS} {ROUND} {UPGRADE} finish win",
        upgraded,
    ),
    Run(
        "a lease that remains shared after a lost upgrade",
        KEPT,
        f"{ROUND} shorten begin_round upgrade finish {ROUND} give_back {EXTENSION} tick",
        two_shared,
    ),
    Run(
        "a lease that is extended before TRANSFER of its lost upgrade arrives",
        MEMORY,
        f"{ROUND} begin_round finish begin_extension confirm confirm count_confirmation "
        "count_confirmation extend upgrade upgrade tick",
        outlives_upgrade,
    ),
    Run(
        "a shared lease that is handed over beside another",
        KEPT,
        f"{ROUND} {ROUND} finish begin_round swap swap count_vote count_vote fix_fence win",
        shared_adopted,
    ),
    Run(
        "all permits of a semaphore, for clients with different limits",
        MEMORY,
        f"{ROUND} {ROUND}",
        all_permits,
        {"Resource": 3},
    ),
    Run(
        "a lease of two permits after one of each",
        KEPT,
        f"{ROUND} {ROUND} finish finish delete delete delete delete {ROUND}",
        two_permits,
        {"Resource": 2},
    ),
    Run(
        "a lease of which a node forgets its part",
        MEMORY,
        f"{ROUND} grant choose_keepers forget",
        some_valid,
    ),
    Run(
        "a lease, and a node whose clock is set",
        MEMORY,
        f"{ROUND} grant choose_keepers set_clock",
        some_valid,
    ),
    Run("a lease behind the guard", GUARD, f"{LOOKS} {ROUND} doubt", some_valid),
    Run(
        "a lease that is repaired",
        GUARD,
        f"{LOOKS} look {ROUND} forget heal look {EXTENSION}",
        some_valid,
    ),
    Run(
        "a lease, and another after its release, where no node forgets",
        KEPT,
        f"{ROUND} finish delete delete {ROUND}",
        two_won,
    ),
    Run(
        "an extended lease where no node forgets",
        KEPT,
        f"{ROUND} {EXTENSION} tick",
        some_valid,
    ),
    Run(
        "a deleted key that comes back",
        GUARD,
        f"{LOOKS} {ROUND} finish delete delete forget",
        returned,
    ),
    Run(
        "leases of clients with different guards",
        GUARD,
        f"{LOOKS} {LOOKS} {ROUND} finish delete delete {ROUND}",
        two_guards,
    ),
    Run(
        "a lease after all nodes lost everything",
        GUARD,
        f"{LOOKS} {ROUND} forget forget {LOOKS} tick {ROUND}",
        lambda s: both(two_won(s), s.lossy),
    ),
    Run(
        "a fence that is raised",
        GUARD,
        f"{LOOKS} begin_round begin_round grant tick expire grant grant count_vote count_vote "
        "fix_fence raise_fence win",
        some_valid,
    ),
    Run(
        "counters that expire",
        GUARD,
        f"{LOOKS} {ROUND} finish delete delete tick expire_counter expire_counter {ROUND}",
        two_won,
    ),
    Run(
        "a lease that is handed over",
        GUARD,
        f"{LOOKS} {ROUND} finish begin_round swap swap count_vote count_vote fix_fence win",
        adopted,
    ),
    Run(
        "a lease that is given back to another adopter",
        KEPT,
        f"{ROUND} finish begin_round begin_round swap finish give_back swap swap count_vote "
        "count_vote fix_fence win",
        adopted,
    ),
)
