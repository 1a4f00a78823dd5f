"""What holds in every reachable state, about clocks, keys, promises and leases.

The heart is `promises_are_kept` and `one_live_promise`: while a promise is live, the node has the
keys, so it makes no second promise that conflicts. Any two majorities share a node, so two leases
that are valid at the same time would need two live promises of one node.
"""

from __future__ import annotations

from proof.logic import Term, both, either, implies, negated
from proof.state import State


def is_past_extension(s: State, x: Term) -> Term:
    """Whether the validity end that an extension may win has passed."""
    clock = s.client_clock(s.client(s.lease(x)))
    return clock >= s.asked_clock(x) + s.extension_validity(x)


def is_live(s: State, node: Term, a: Term) -> Term:
    """Whether a node's promise binds it: the time is not over, and the client has not given up."""
    return both(s.promised(node, a), negated(s.over(a)), s.now < s.promise(node, a))


def rounds_are_timed(s: State) -> Term:
    """Since a round began, the client's clock advanced at a rate that assumption (b) allows."""

    def slack(a: Term) -> Term:
        return s.wait(s.client(a)) - s.guard

    return s.every(
        lambda a: implies(
            s.sent(a),
            both(
                s.sent_at(a) <= s.now,
                s.client_clock(s.client(a)) - s.sent_clock(a) >= s.now - s.sent_at(a),
                s.guard_clock(s.client(a)) >= s.sent_guard(a),
                either(
                    s.is_past(a),
                    s.now - s.sent_at(a) <= s.guard_clock(s.client(a)) - s.sent_guard(a) + slack(a),
                ),
            ),
        )
    )


def extensions_are_timed(s: State) -> Term:
    """The same since an extension began. Only leases are extended."""

    def holder(x: Term) -> Term:
        return s.client(s.lease(x))

    def slack(x: Term) -> Term:
        return s.wait(holder(x)) - s.guard

    return s.every(
        lambda x: implies(
            s.asked(x),
            both(
                s.won(s.lease(x)),
                s.asked_at(x) <= s.now,
                s.client_clock(holder(x)) - s.asked_clock(x) >= s.now - s.asked_at(x),
                s.guard_clock(holder(x)) >= s.asked_guard(x),
                either(
                    is_past_extension(s, x),
                    s.now - s.asked_at(x) <= s.guard_clock(holder(x)) - s.asked_guard(x) + slack(x),
                ),
            ),
        )
    )


def keys_are_asked(s: State) -> Term:
    """A node has keys only of rounds that have begun."""
    return s.every(lambda node, resource, a: implies(s.holds(node, resource, a), s.sent(a)))


def keys_exclude(s: State) -> Term:
    """A node gives one key to two tokens only in shared mode."""
    return s.every(
        lambda node, resource, a, b: implies(
            both(s.holds(node, resource, a), s.holds(node, resource, b), a != b),
            both(negated(s.locks(node, resource, a)), negated(s.locks(node, resource, b))),
        )
    )


def promises_are_bounded(s: State) -> Term:
    """A promise ends at most the longest validity from now, so a guard of that length outlasts it.
    The promise to a round that is not won yet lasts until the validity end that it may win."""
    return s.every(
        lambda node, a: implies(
            s.promised(node, a),
            both(
                s.sent(a),
                s.promise(node, a) <= s.now + s.guard,
                either(s.won(a), s.promise(node, a) >= s.sent_at(a) + s.validity(a)),
            ),
        )
    )


def promises_are_kept(s: State) -> Term:
    """While a promise is live, the node has the keys, and will have them until the promise ends.
    Those of an upgrade that is under way or was lost stand in for the keys of the shared lease.
    The exception are promises that the node may have forgotten: the guard waits for their end."""
    return s.every(
        lambda node, resource, a: implies(
            both(
                is_live(s, node, a),
                s.uses(a, resource),
                either(negated(s.guarded), s.promise(node, a) > s.forgot_at(node) + s.guard),
            ),
            both(
                s.holds(node, resource, s.stand_in(node, a)),
                s.expires(node, resource, s.stand_in(node, a)) - s.node_clock(node)
                >= s.promise(node, a) - s.now,
            ),
        )
    )


def one_live_promise(s: State) -> Term:
    """A node has no two live promises that conflict, kept or forgotten, but those to a lease and to
    its upgrade."""
    return s.every(
        lambda node, a, b: negated(
            both(
                s.contend(a, b),
                negated(both(s.upgrader(a), s.parent(a) == b)),
                negated(both(s.upgrader(b), s.parent(b) == a)),
                is_live(s, node, a),
                is_live(s, node, b),
            )
        )
    )


def confirmations_prolong(s: State) -> Term:
    """A node whose confirmation may count has promised to keep the keys until the new end."""
    return s.every(
        lambda node, x: implies(
            s.confirmed(node, x),
            both(
                s.asked(x),
                s.promised(node, s.lease(x)),
                s.promise(node, s.lease(x)) >= s.asked_at(x) + s.extension_validity(x),
            ),
        )
    )


def leases_end_in_time(s: State) -> Term:
    """A lease's validity end comes, by its holder's clock, no later than `end_at`."""
    return s.every(
        lambda a: implies(
            s.won(a),
            both(s.sent(a), s.client_clock(s.client(a)) - s.end(a) >= s.now - s.end_at(a)),
        )
    )


def leases_are_promised(s: State) -> Term:
    """A majority has promised each valid lease its keys until the end."""
    return s.every(
        lambda node, a: implies(
            both(s.valid(a), s.member(node, s.keepers(a))),
            both(s.promised(node, a), s.promise(node, a) >= s.end_at(a)),
        )
    )


def keepers_are_a_majority(s: State) -> Term:
    """They are a majority."""
    return s.every(lambda a: implies(s.won(a), s.majority(s.keepers(a))))


def leases_have_places(s: State) -> Term:
    """The leases have different places in the order in which they were won."""
    return s.every(
        lambda a, b: both(
            implies(s.won(a), s.place(a) < s.wins),
            implies(both(s.won(a), s.won(b), a != b), s.place(a) != s.place(b)),
        )
    )


CONJUNCTS = (
    rounds_are_timed,
    extensions_are_timed,
    keys_are_asked,
    keys_exclude,
    promises_are_bounded,
    promises_are_kept,
    one_live_promise,
    confirmations_prolong,
    leases_end_in_time,
    leases_are_promised,
    keepers_are_a_majority,
    leases_have_places,
)
