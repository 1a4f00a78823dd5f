"""What holds in every reachable state, about fences and their counters.

A node's `mark` is the largest fence that it ever stored, remembered or not. The counter, the wall
clock or the guard keeps every trusted grant above it (`forgotten_counters_are_passed`). The rest
follows one lease's fence to a majority, where every later winner must pass it.
"""

from __future__ import annotations

from proof.invariant.lock import is_live
from proof.logic import Term, both, either, implies, negated
from proof.state import State


def wall_clocks_are_near_their_top(s: State) -> Term:
    """A node's wall clock is at most `set_back` behind its largest reading."""
    return s.every(
        lambda node: both(
            s.wall(node) <= s.wall_top(node), s.wall(node) >= s.wall_top(node) - s.set_back
        )
    )


def wall_clocks_are_right(s: State) -> Term:
    """If counters can be lost, the nodes' wall clocks are about right."""
    return implies(
        s.lossy,
        s.every(
            lambda node: both(s.wall(node) <= s.now + s.spread, s.wall(node) >= s.now - s.spread)
        ),
    )


def counters_are_kept(s: State) -> Term:
    """A counter is at most the mark, and is kept until the wall clock has passed it by far."""
    return s.every(
        lambda node, resource: both(
            s.counter(node, resource) <= s.mark(node, resource),
            s.counter(node, resource) <= s.counter_until(node, resource) - s.memory + s.window,
        )
    )


def forgotten_counters_are_passed(s: State) -> Term:
    """A mark above the counter expired after the wall clock had passed it, or was lost with the
    node's memory, and the guard waits until the wall clock has passed it."""
    return s.every(
        lambda node, resource: either(
            s.mark(node, resource) <= s.counter(node, resource),
            s.mark(node, resource) < s.wall_top(node) - s.set_back - s.window,
            both(s.lossy, s.mark(node, resource) <= s.forgot_at(node) + s.spread + s.window),
        )
    )


def fences_are_near_the_clock(s: State) -> Term:
    """If counters can be lost, no fence is far ahead of true time."""
    limit = s.now + s.spread + s.window
    return implies(
        s.lossy,
        both(
            s.every(lambda node, resource: s.mark(node, resource) <= limit),
            s.every(lambda node, a: implies(s.granted(node, a), s.vote_fence(node, a) <= limit)),
            s.every(lambda a: implies(s.fixed(a), s.fence(a) <= limit)),
        ),
    )


def trusted_fences_are_marked(s: State) -> Term:
    """A fence that a node granted, in a trusted grant, is at most its mark."""
    return s.every(
        lambda node, resource, a: implies(
            both(s.trusted(node, a), s.uses(a, resource)),
            s.vote_fence(node, a) <= s.mark(node, resource),
        )
    )


def trusted_fences_differ(s: State) -> Term:
    """A node grants no fence twice, to attempts that conflict."""
    return s.every(
        lambda node, a, b: implies(
            both(s.conflict(a, b), s.trusted(node, a), s.trusted(node, b)),
            s.vote_fence(node, a) != s.vote_fence(node, b),
        )
    )


def grants_after_a_store_are_larger(s: State) -> Term:
    """Where a fence is stored, the grants that follow the lease's own are above the fence.

    RAISE is applied only while the node has the keys, so no grant comes between.
    """
    return s.every(
        lambda node, a, b: implies(
            both(
                s.conflict(a, b),
                s.stored(node, a),
                s.trusted(node, a),
                s.trusted(node, b),
                s.vote_fence(node, b) > s.vote_fence(node, a),
            ),
            s.vote_fence(node, b) > s.fence(a),
        )
    )


def live_grants_are_last(s: State) -> Term:
    """While a node's promise to a round that is not won is live, its grant is the last one."""
    return s.every(
        lambda node, a, b: implies(
            both(
                s.conflict(a, b),
                s.trusted(node, a),
                s.trusted(node, b),
                negated(s.won(b)),
                is_live(s, node, b),
            ),
            s.vote_fence(node, a) < s.vote_fence(node, b),
        )
    )


def stored_fences_are_marked(s: State) -> Term:
    """A stored fence is at most the mark of the node that stores it, if its grant is trusted."""
    return s.every(
        lambda node, resource, a: implies(
            both(s.stored(node, a), s.trusted(node, a), s.uses(a, resource)),
            s.fence(a) <= s.mark(node, resource),
        )
    )


def fences_are_largest(s: State) -> Term:
    """A fence is stored only where it was weighed, and is the largest of the votes weighed."""
    return s.every(
        lambda node, a: both(
            implies(s.stored(node, a), s.weighed(node, a)),
            implies(
                s.weighed(node, a),
                both(
                    s.fixed(a),
                    s.counted(node, a),
                    s.vote_fence(node, a) <= s.fence(a),
                ),
            ),
        )
    )


def leases_are_stored(s: State) -> Term:
    """A majority stored the fence of each lease before it was won."""
    return s.every(
        lambda node, a: implies(
            s.won(a),
            both(
                s.fixed(a),
                s.majority(s.storers(a)),
                implies(s.member(node, s.storers(a)), both(s.stored(node, a), s.trusted(node, a))),
            ),
        )
    )


def fences_grow(s: State) -> Term:
    """A lease that is won later has a larger fence."""
    return s.every(
        lambda a, b: implies(
            both(s.conflict(a, b), s.won(a), s.won(b), s.place(a) < s.place(b)),
            s.fence(a) < s.fence(b),
        )
    )


def valid_fences_are_largest(s: State) -> Term:
    """No lease that conflicts with a valid one has a larger fence."""
    return s.every(
        lambda a, b: implies(both(s.contend(a, b), s.valid(a), s.won(b)), s.fence(b) < s.fence(a))
    )


def adopters_grants_are_larger(s: State) -> Term:
    """Where the fence of a lease is stored, the grants to its adopters are above the fence."""
    return s.every(
        lambda node, a: implies(
            both(
                s.adopter(a),
                s.trusted(node, a),
                s.trusted(node, s.parent(a)),
                s.stored(node, s.parent(a)),
            ),
            s.fence(s.parent(a)) < s.vote_fence(node, a),
        )
    )


CONJUNCTS = (
    wall_clocks_are_near_their_top,
    wall_clocks_are_right,
    counters_are_kept,
    forgotten_counters_are_passed,
    fences_are_near_the_clock,
    trusted_fences_are_marked,
    trusted_fences_differ,
    grants_after_a_store_are_larger,
    live_grants_are_last,
    stored_fences_are_marked,
    fences_are_largest,
    leases_are_stored,
    fences_grow,
    valid_fences_are_largest,
    adopters_grants_are_larger,
)
