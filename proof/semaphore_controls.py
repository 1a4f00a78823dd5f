"""Deliberate errors in semaphores: see `controls.py`."""

from __future__ import annotations

from proof import properties
from proof.changes import but, without
from proof.control import Control
from proof.logic import Term, both, either, implies, mapped, negated
from proof.runs import ROUND, violates
from proof.state import State
from proof.systems import KEPT, MEMORY


def _is_free(s: State, node: Term, resource: Term) -> Term:
    """Whether a node has no key of a slot."""
    return s.every(lambda b: negated(s.holds(node, resource, b)))


def _only(t: State, node: Term, attempt: Term, slot: Term) -> State:
    """The state after a grant of one of several slots."""
    return t.but(
        holds=mapped(
            t.holds,
            lambda other, resource, a: both(
                t.holds(other, resource, a),
                implies(both(other == node, a == attempt), resource == slot),
            ),
        )
    )


def three_permits(s: State) -> Term:
    """Three permits are valid: that is all attempts of the run."""
    return s.every(lambda a: both(s.valid(a), s.writes(a, s.first(a))))


def same_slot(s: State) -> Term:
    """Two leases have valid permits with the same number."""
    return negated(
        s.every(
            lambda resource, second, a, b: negated(
                both(
                    s.valid(a),
                    s.valid(b),
                    a != b,
                    s.uses(a, resource),
                    s.uses(b, second),
                    s.writes(a, resource),
                    s.writes(b, second),
                    s.semaphore(resource) == s.semaphore(second),
                    s.slot(resource) == s.slot(second),
                )
            )
        )
    )


def too_many(s: State) -> Term:
    """Two permits of clients with limit 1 are valid."""
    return negated(
        s.every(
            lambda resource, second, a, b: negated(
                both(
                    s.valid(a),
                    s.valid(b),
                    a != b,
                    s.limit(a) == 1,
                    s.limit(b) == 1,
                    s.uses(a, resource),
                    s.uses(b, second),
                    s.writes(a, resource),
                    s.writes(b, second),
                    s.semaphore(resource) == s.semaphore(second),
                )
            )
        )
    )


SEMAPHORE_CONTROLS = (
    Control(
        "counted semaphore",
        "A node counts the members of a set, and admits two, instead of a lock for each slot.",
        MEMORY,
        but(
            "grant",
            lambda s, node, attempt, **_: {
                "all resources are free": s.every(
                    lambda resource, b, c: negated(
                        both(
                            s.uses(attempt, resource),
                            s.holds(node, resource, b),
                            s.holds(node, resource, c),
                            either(b != c, b == attempt),
                        )
                    )
                )
            },
        ),
        {"grant": {"keys_exclude", "one_live_promise", "promises_are_kept"}},
        f"{ROUND} {ROUND} {ROUND}",
        three_permits,
    ),
    Control(
        "counted free slots",
        "A node grants the slots that a client names if as many are free, whichever these are.",
        MEMORY,
        but(
            "grant",
            lambda s, node, **_: {
                "all resources are free": negated(
                    s.every(lambda resource: negated(_is_free(s, node, resource)))
                )
            },
        ),
        {"grant": {"keys_exclude", "one_live_promise", "promises_are_kept"}},
        f"{ROUND} {ROUND}",
        sizes={"Resource": 2},
    ),
    Control(
        "votes for different slots",
        "A client wants any of two slots, each node grants one that is free there, and the client "
        "adds the votes up.",
        MEMORY,
        but(
            "grant",
            lambda s, node, attempt, resource, **_: {
                "all resources are free": both(
                    s.uses(attempt, resource), _is_free(s, node, resource)
                )
            },
            lambda t, s, node, attempt, resource, **_: _only(t, node, attempt, resource),
        ),
        {"grant": {"one_live_promise", "promises_are_kept"}},
        f"{ROUND} {ROUND} {ROUND}",
        three_permits,
        {"Resource": 2},
    ),
    Control(
        "slot above the limit",
        "A client chooses a slot that is not below its limit, such as one that a node reported.",
        MEMORY,
        without("begin_round", "its slots are below its limit"),
        {"begin_round": {"slots_are_below_limits"}},
        f"{ROUND} {ROUND}",
        too_many,
        {"Resource": 2},
    ),
    Control(
        "keys that contain the limit",
        "Clients with different limits have different keys for the same slot.",
        MEMORY,
        without("begin_round", "each client has the same keys for these slots"),
        {"begin_round": {"slots_have_one_key"}},
        f"{ROUND} {ROUND}",
        same_slot,
        {"Resource": 2},
    ),
    Control(
        "fence above one slot's counter",
        "The fence of a lease with several slots is above the counter of one of them.",
        KEPT,
        but(
            "grant",
            lambda s, node, attempt, fence, **_: {
                "the fence is above the counters": fence > s.counter(node, s.first(attempt))
            },
        ),
        {
            "grant": {
                "grants_after_a_store_are_larger",
                "live_grants_are_last",
                "trusted_fences_differ",
            }
        },
        f"{ROUND} finish delete delete {ROUND}",
        violates(properties.fences),
        {"Resource": 2},
    ),
    Control(
        "EXTEND of some slots",
        "A node confirms an extension though it lost the key of one of the lease's slots.",
        MEMORY,
        but(
            "confirm",
            lambda s, node, extension, **_: {
                "the node has the keys": s.holds(
                    node, s.first(s.lease(extension)), s.lease(extension)
                )
            },
        ),
        {"confirm": {"one_live_promise", "promises_are_kept"}},
        "begin_round grant grant grant count_vote count_vote fix_fence win forget begin_extension "
        "tick confirm confirm count_confirmation count_confirmation extend "
        f"tick expire expire {ROUND}",
        sizes={"Resource": 2},
    ),
)
