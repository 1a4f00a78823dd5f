"""What holds in every reachable state, about the restart guard: a vote that a client counts is one
that could not follow a forgotten promise."""

from __future__ import annotations

from proof.invariant.lock import is_past_extension
from proof.logic import Term, both, either, implies, negated
from proof.state import State


def memory_is_lost_in_the_past(s: State) -> Term:
    """A node's last loss of memory is not in the future."""
    return s.every(lambda node: s.forgot_at(node) <= s.now)


def guards_last(s: State) -> Term:
    """From the beginning of the newest memory that a client knows, its guard lasts for `wait`."""
    return s.every(
        lambda client, node: implies(
            s.looked(client, node),
            both(
                s.newest(client, node) <= s.forgot_at(node),
                implies(s.reports(client, node), s.seen(client, node) <= s.newest(client, node)),
                s.counts_from(client, node) - s.guard_clock(client)
                >= s.newest(client, node) + s.wait(client) - s.now,
            ),
        )
    )


def counted_rounds_are_late(s: State) -> Term:
    """A round that counts a node began after the guard of the newest known memory, unless its end
    has passed."""
    return s.every(
        lambda node, a: implies(
            both(
                s.sent(a),
                s.looked(s.client(a), node),
                s.sent_guard(a) >= s.counts_from(s.client(a), node),
            ),
            either(s.is_past(a), s.sent_at(a) >= s.newest(s.client(a), node) + s.guard),
        )
    )


def counted_extensions_are_late(s: State) -> Term:
    """The same of extensions."""
    return s.every(
        lambda node, x: implies(
            both(
                s.asked(x),
                s.looked(s.client(s.lease(x)), node),
                s.asked_guard(x) >= s.counts_from(s.client(s.lease(x)), node),
            ),
            either(
                is_past_extension(s, x),
                s.asked_at(x) >= s.newest(s.client(s.lease(x)), node) + s.guard,
            ),
        )
    )


def grants_are_trusted(s: State) -> Term:
    """A grant is trusted if the round began long enough after the node's last loss of memory. Then
    the node made a promise."""
    return s.every(
        lambda node, a: both(
            implies(
                both(
                    s.granted(node, a),
                    either(
                        negated(s.guarded),
                        s.sent_at(a) >= s.granted_since(node, a) + s.guard,
                    ),
                ),
                s.trusted(node, a),
            ),
            implies(both(s.trusted(node, a), s.guarded), s.promised(node, a)),
            implies(s.granted(node, a), s.sent(a)),
            implies(s.trusted(node, a), s.granted(node, a)),
        )
    )


def confirmations_are_trusted(s: State) -> Term:
    """The same of confirmations."""
    return s.every(
        lambda node, x: both(
            implies(
                both(s.applied(node, x), s.asked_at(x) >= s.applied_since(node, x) + s.guard),
                either(s.confirmed(node, x), negated(s.guarded)),
            ),
            implies(s.applied(node, x), s.asked(x)),
        )
    )


def counted_votes_are_trusted(s: State) -> Term:
    """A vote that a client counts is trusted, unless the round's end has passed."""
    return s.every(
        lambda node, a: implies(
            s.counted(node, a),
            both(s.granted(node, a), either(s.trusted(node, a), s.is_past(a))),
        )
    )


def counted_confirmations_are_trusted(s: State) -> Term:
    """The same of confirmations."""
    return implies(
        s.guarded,
        s.every(
            lambda node, x: implies(
                s.acknowledged(node, x),
                both(s.applied(node, x), either(s.confirmed(node, x), is_past_extension(s, x))),
            )
        ),
    )


def trusted_grants_are_promises(s: State) -> Term:
    """Where no node forgets, a grant remains a promise without the guard, too."""
    return s.every(lambda node, a: implies(s.trusted(node, a), s.promised(node, a)))


CONJUNCTS = (
    memory_is_lost_in_the_past,
    guards_last,
    counted_rounds_are_late,
    counted_extensions_are_late,
    grants_are_trusted,
    confirmations_are_trusted,
    counted_votes_are_trusted,
    counted_confirmations_are_trusted,
)
