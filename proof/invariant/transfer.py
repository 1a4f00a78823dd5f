"""What holds in every reachable state, about hand-over."""

from __future__ import annotations

from proof.logic import Term, both, implies, negated
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
    """The parent's keys do not come back where they were swapped away."""
    return s.every(
        lambda node, resource, a: implies(
            both(s.swapped(node, a), s.uses(a, resource)),
            negated(s.holds(node, resource, s.parent(a))),
        )
    )


def nodes_swap_once(s: State) -> Term:
    """So a node swaps the keys of a lease once."""
    return s.every(
        lambda node, a, b: implies(
            both(s.swapped(node, a), s.swapped(node, b), s.parent(a) == s.parent(b)), a == b
        )
    )


def adopters_swapped(s: State) -> Term:
    """A node that promised an adopter its keys before the win has swapped them."""
    return s.every(
        lambda node, a: implies(
            both(s.adopter(a), s.promised(node, a), negated(s.won(a))), s.swapped(node, a)
        )
    )


def winners_swapped(s: State) -> Term:
    """An adopter won with a majority that swapped the keys."""
    return s.every(
        lambda node, a: implies(
            both(s.adopter(a), s.won(a)),
            both(
                s.majority(s.swappers(a)),
                implies(s.member(node, s.swappers(a)), s.swapped(node, a)),
            ),
        )
    )


def adopters_win_later(s: State) -> Term:
    """An adopter is won after the lease that it takes over."""
    return s.every(
        lambda a: implies(both(s.adopter(a), s.won(a)), s.place(s.parent(a)) < s.place(a))
    )


CONJUNCTS = (
    parents_have_ended,
    swaps_are_asked,
    adopters_win_later,
)

ONCE = (
    swapped_keys_stay_away,
    nodes_swap_once,
    adopters_swapped,
    winners_swapped,
)
"""These need that late requests are refused where the keys were swapped away (`once`)."""
