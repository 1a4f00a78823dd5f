"""Deliberate errors in shared mode, downgrades and upgrades: see `controls.py`."""

from __future__ import annotations

from collections.abc import Callable

from proof.changes import but, without
from proof.control import Control
from proof.logic import Term, both, choose, either, implies, mapped, negated
from proof.runs import ROUND, UPGRADE
from proof.state import State
from proof.systems import MEMORY


def _is_reader(s: State, attempt: Term) -> Term:
    """Whether the attempt is exclusive for no resource."""
    return s.every(
        lambda resource: implies(s.uses(attempt, resource), negated(s.writer(attempt, resource)))
    )


def _recreated(t: State, s: State, node: Term, extension: Term, **_: Term) -> State:
    """The state after EXTEND, which also creates the keys."""
    lease = s.lease(extension)
    return t.but(
        holds=mapped(
            t.holds,
            lambda other, resource, a: either(
                t.holds(other, resource, a),
                both(other == node, a == lease, s.uses(lease, resource)),
            ),
        )
    )


def _underlived(t: State, s: State, node: Term, attempt: Term, **_: Term) -> State:
    """The state after a grant, with the marker's ttl: all readers expire with the latest."""
    return t.but(
        expires=mapped(
            t.expires,
            lambda other, resource, a: choose(
                both(other == node, s.uses(attempt, resource)),
                s.node_clock(node) + s.ttl(attempt),
                t.expires(other, resource, a),
            ),
        )
    )


def _shortened(t: State, s: State, node: Term, attempt: Term, **_: Term) -> State:
    """The state after TRANSFER of an upgrade, whose keys have their own ttl only."""
    return t.but(
        expires=mapped(
            t.expires,
            lambda other, resource, a: choose(
                both(other == node, s.uses(attempt, resource), a == attempt),
                s.node_clock(node) + s.ttl(attempt),
                t.expires(other, resource, a),
            ),
        )
    )


def _given_back_for(
    t: State, s: State, node: Term, attempt: Term, remaining: Term, **_: Term
) -> State:
    """The state after GIVE BACK, whose keys have the remaining time only."""
    return t.but(
        expires=mapped(
            t.expires,
            lambda other, resource, a: choose(
                both(
                    other == node,
                    s.uses(attempt, resource),
                    s.holds(node, resource, attempt),
                    a == s.parent(attempt),
                ),
                s.node_clock(node) + remaining,
                t.expires(other, resource, a),
            ),
        )
    )


def _only_exclusive(after: Callable[..., State]) -> Callable[..., State]:
    """The error `after` only for what the parent of an attempt has exclusively."""

    def partly(t: State, s: State, attempt: Term, **arguments: Term) -> State:
        wrong = after(t, s, attempt=attempt, **arguments)
        return t.but(
            expires=mapped(
                t.expires,
                lambda other, resource, a: choose(
                    s.writer(s.parent(attempt), resource),
                    wrong.expires(other, resource, a),
                    t.expires(other, resource, a),
                ),
            )
        )

    return partly


def _two_writers(s: State) -> Term:
    """Two valid leases have one resource exclusively. One of them shares another resource."""
    return negated(
        s.every(
            lambda resource, a, b: negated(
                both(
                    s.valid(a),
                    s.valid(b),
                    a != b,
                    s.uses(a, resource),
                    s.uses(b, resource),
                    s.writes(a, resource),
                    s.writes(b, resource),
                    negated(s.writer(a, s.first(a))),
                )
            )
        )
    )


PROLONGED = "begin_extension confirm confirm count_confirmation count_confirmation extend"
"""An extension that two nodes confirm, while no time passes."""

MODE_CONTROLS = (
    Control(
        "exclusive beside shared",
        "A node grants an exclusive lease while a shared one has the key.",
        MEMORY,
        but(
            "grant",
            lambda s, node, attempt, **_: {
                "all resources are free": s.every(
                    lambda resource, b: implies(
                        both(s.uses(attempt, resource), s.holds(node, resource, b)),
                        both(b != attempt, negated(s.locks(node, resource, b))),
                    )
                )
            },
        ),
        {"grant": {"keys_exclude", "one_live_promise"}},
        f"{ROUND} {ROUND}",
    ),
    Control(
        "EXTEND creates a reader",
        "EXTEND makes a reader of a lease whose share has expired, though a writer has the key.",
        MEMORY,
        but(
            "confirm",
            lambda s, node, extension, **_: {
                "the node has the keys": either(
                    _is_reader(s, s.lease(extension)),
                    s.every(
                        lambda resource: implies(
                            s.uses(s.lease(extension), resource),
                            s.holds(node, resource, s.lease(extension)),
                        )
                    ),
                )
            },
            _recreated,
        ),
        {
            "confirm": {
                "keys_exclude",
                "one_live_promise",
                "promises_are_kept",
                "swapped_keys_stay_away",
            }
        },
        f"{ROUND} begin_extension begin_round grant tick confirm confirm count_confirmation "
        "count_confirmation extend tick expire grant count_vote count_vote fix_fence win",
    ),
    Control(
        "HEAL beside a writer",
        "HEAL makes a lease a reader where a writer has the key.",
        MEMORY,
        but(
            "heal",
            lambda s, attempt, **_: {"no other token is in the way": _is_reader(s, attempt)},
        ),
        {"heal": {"keys_exclude"}},
        f"{ROUND} begin_extension begin_round grant heal tick confirm confirm count_confirmation "
        "count_confirmation extend tick expire grant count_vote count_vote fix_fence win",
    ),
    Control(
        "marker that underlives a reader",
        "A reader with a short ttl shortens the time for which a node keeps writers out.",
        MEMORY,
        but("grant", after=_underlived),
        {"grant": {"promises_are_kept"}},
        f"{ROUND} begin_round grant grant tick expire expire expire expire {ROUND}",
    ),
    Control(
        "DOWNGRADE before the lease is shared",
        "A node lets readers in while the holder takes its lease as exclusive.",
        MEMORY,
        without("downgrade", "the lease is shared for its holder"),
        {"downgrade": {"downgrades_are_asked"}},
        f"{ROUND} downgrade downgrade {ROUND}",
    ),
    Control(
        "upgrade beside another reader",
        "A node upgrades a lease though another one has the key, too.",
        MEMORY,
        without("upgrade", "no other token is in the way"),
        {"upgrade": {"keys_exclude", "one_live_promise", "promises_are_kept"}},
        f"{ROUND} {ROUND} {UPGRADE} finish win",
    ),
    Control(
        "upgrade of a lease that goes on",
        "An upgrade is won while its shared lease is valid.",
        MEMORY,
        without("win", "a lease that is upgraded has ended"),
        {"win": {"upgraded_leases_have_ended"}},
        f"{ROUND} {UPGRADE} win",
    ),
    Control(
        "UNDO of an upgrade",
        "The keys of a lost upgrade are deleted, and not given back to the shared lease.",
        MEMORY,
        without("delete", "a lease that it was to upgrade has ended"),
        {"delete": {"promises_are_kept"}},
        f"{ROUND} begin_round upgrade upgrade finish delete delete {ROUND}",
    ),
    Control(
        "upgrade that shortens",
        "TRANSFER of an upgrade sets keys that expire before those that they replace.",
        MEMORY,
        but("upgrade", after=_shortened),
        {"upgrade": {"promises_are_kept"}},
        f"{ROUND} begin_round upgrade upgrade tick expire expire {ROUND}",
    ),
    Control(
        "late TRANSFER that shortens exclusive keys",
        "After a lost upgrade, its lease is extended. Then a late TRANSFER shortens the time of "
        "what the lease has exclusively.",
        MEMORY,
        but("upgrade", after=_only_exclusive(_shortened)),
        {"upgrade": {"promises_are_kept"}},
        f"{ROUND} begin_round finish {PROLONGED} upgrade upgrade tick expire expire {ROUND}",
        _two_writers,
        {"Resource": 2},
    ),
    Control(
        "GIVE BACK that shortens",
        "A lost upgrade gives keys back that expire before those that they replace, as a hand-over "
        "may do.",
        MEMORY,
        but("give_back", after=_given_back_for),
        {"give_back": {"promises_are_kept"}},
        f"{ROUND} begin_round upgrade upgrade finish give_back give_back tick expire expire "
        f"{ROUND}",
    ),
    Control(
        "late GIVE BACK that shortens exclusive keys",
        "After a lost upgrade, its lease is extended. Then TRANSFER and GIVE BACK arrive late, and "
        "GIVE BACK shortens the time of what the lease has exclusively.",
        MEMORY,
        but("give_back", after=_only_exclusive(_given_back_for)),
        {"give_back": {"promises_are_kept"}},
        f"{ROUND} begin_round finish {PROLONGED} upgrade upgrade give_back give_back tick expire "
        f"expire {ROUND}",
        _two_writers,
        {"Resource": 2},
    ),
)
