"""What holds in every reachable state, about hand-over."""

from __future__ import annotations

from proof.logic import Term, both, either, implies, negated
from proof.state import State


def parents_have_ended(s: State) -> Term:
    """A lease is taken over only after it has ended for its holder."""
    return s.every(
        lambda a: implies(
            both(s.adopter(a), s.sent(a)), both(s.won(s.parent(a)), s.over(s.parent(a)))
        )
    )


def swaps_are_asked(s: State) -> Term:
    """Only adopters swap keys."""
    return s.every(lambda node, a: implies(s.swapped(node, a), both(s.adopter(a), s.sent(a))))


def swapped_keys_stay_away(s: State) -> Term:
    """The parent's keys do not come back where they were swapped away, except where a request of
    the giver was under way, or where nodes lose hand-overs."""
    return s.every(
        lambda node, resource, a: implies(
            both(
                negated(s.rewinds),
                s.swapped(node, a),
                s.settled(node, s.parent(a)),
                s.uses(a, resource),
            ),
            negated(s.holds(node, resource, s.parent(a))),
        )
    )


def nodes_swap_once(s: State) -> Term:
    """So such a node swaps the keys of a lease once, until they are given back."""
    return s.every(
        lambda node, a, b: implies(
            both(
                negated(s.rewinds),
                s.swapped(node, a),
                s.swapped(node, b),
                s.parent(a) == s.parent(b),
                s.settled(node, s.parent(a)),
            ),
            a == b,
        )
    )


def adopters_swapped(s: State) -> Term:
    """A node that granted an adopter, or has its keys, has swapped them. Only what a lost adopter
    had is given back."""
    return s.every(
        lambda node, resource, a: both(
            implies(
                both(s.adopter(a), s.granted(node, a), either(s.won(a), negated(s.over(a)))),
                s.swapped(node, a),
            ),
            implies(
                both(
                    negated(s.rewinds),
                    s.adopter(a),
                    s.uses(a, resource),
                    s.holds(node, resource, a),
                    negated(s.won(a)),
                ),
                s.swapped(node, a),
            ),
        )
    )


def winners_swapped(s: State) -> Term:
    """An adopter won with a majority that swapped the keys and had no request under way."""
    return s.every(
        lambda node, a: both(
            implies(
                both(s.adopter(a), s.counted(node, a)),
                both(s.granted(node, a), s.settled(node, s.parent(a))),
            ),
            implies(
                both(s.adopter(a), s.won(a)),
                both(
                    s.majority(s.swappers(a)),
                    implies(
                        s.member(node, s.swappers(a)),
                        both(s.swapped(node, a), s.settled(node, s.parent(a))),
                    ),
                ),
            ),
        )
    )


def adopters_win_later(s: State) -> Term:
    """An adopter or upgrade is won after the lease that it takes over."""
    return s.every(
        lambda a: implies(
            both(either(s.adopter(a), s.upgrader(a)), s.won(a)),
            s.place(s.parent(a)) < s.place(a),
        )
    )


CONJUNCTS = (
    parents_have_ended,
    swaps_are_asked,
    swapped_keys_stay_away,
    nodes_swap_once,
    adopters_swapped,
    winners_swapped,
    adopters_win_later,
)
