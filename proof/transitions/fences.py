"""Fences: what a node grants, how a client decides the fence, RAISE, and counters that expire."""

from __future__ import annotations

from proof.logic import (
    Function,
    Term,
    both,
    changed,
    choose,
    either,
    implies,
    larger,
    mapped,
    negated,
)
from proof.state import State
from proof.step import ASSUMED, Step


def floor(s: State, node: Term, proposal: Term) -> Term:
    """The least fence that a node grants for a proposal."""
    wall = s.wall(node)
    is_near = both(proposal - wall <= s.window, wall - proposal <= s.window)
    return choose(is_near, proposal, wall)


def next_fence(
    s: State, node: Term, attempt: Term, fence: Term, proposal: Term, resource: Term
) -> dict[str, Term]:
    """The conditions under which `fence` is what a node grants. `resource` is one with the largest
    counter, if the fence is above the floor."""
    least = floor(s, node, proposal)
    next_one = s.counter(node, resource) + s.step
    return {
        "the fence is above the counters": s.every(
            lambda resource: implies(s.uses(attempt, resource), fence > s.counter(node, resource))
        ),
        "the fence is not below the floor": fence >= least,
        "the fence is no larger than it must be": either(
            fence <= least, both(s.uses(attempt, resource), fence <= next_one)
        ),
        ASSUMED + "one resource is granted at most once a microsecond, if counters can be lost": (
            implies(s.lossy, fence <= s.now + s.spread + s.window)
        ),
    }


def keep(
    s: State, node: Term, attempt: Term, fence: Term, only: Function = lambda resource: True
) -> State:
    """The state after the node stored a fence for all resources of an attempt (`only` some), where
    it is larger than the counter. The counter is kept until the wall clock has passed it."""
    wall = s.wall(node)
    lead = choose(fence - wall > s.window, fence - wall, 0)
    until = wall + s.memory + lead

    def is_stored(other: Term, resource: Term) -> Term:
        is_larger = fence > s.counter(other, resource)
        return both(other == node, s.uses(attempt, resource), only(resource), is_larger)

    return s.but(
        counter=mapped(
            s.counter,
            lambda other, resource: choose(
                is_stored(other, resource), fence, s.counter(other, resource)
            ),
        ),
        counter_until=mapped(
            s.counter_until,
            lambda other, resource: choose(
                is_stored(other, resource), until, s.counter_until(other, resource)
            ),
        ),
        mark=mapped(
            s.mark,
            lambda other, resource: choose(
                is_stored(other, resource),
                larger(fence, s.mark(other, resource)),
                s.mark(other, resource),
            ),
        ),
    )


def fix_fence(s: State, node: Term, attempt: Term, weighed: Term, fence: Term) -> Step:
    """A client decides the fence: the largest among the counted votes of a majority. `node` is one
    that granted it. The nodes that granted it store it already.

    Rule: core/protocol/src/fence.rs settle, core/protocol/src/round.rs decide
    """
    conditions = {
        "the round goes on": both(
            s.sent(attempt), negated(s.won(attempt)), negated(s.over(attempt))
        ),
        "the fence is not decided yet": negated(s.fixed(attempt)),
        "a majority voted": s.majority(weighed),
        "the votes count": s.every(
            lambda node: implies(s.member(node, weighed), s.counted(node, attempt))
        ),
        "the fence is one of them": both(
            s.member(node, weighed), s.vote_fence(node, attempt) == fence
        ),
        "no other is larger": s.every(
            lambda node: implies(s.member(node, weighed), s.vote_fence(node, attempt) <= fence)
        ),
    }
    after = s.but(
        fixed=changed(s.fixed, (attempt,), True),
        fence=changed(s.fence, (attempt,), fence),
        weighed=mapped(
            s.weighed,
            lambda other, a: choose(a == attempt, s.member(other, weighed), s.weighed(other, a)),
        ),
        stored=mapped(
            s.stored,
            lambda other, a: choose(
                a == attempt,
                both(s.member(other, weighed), s.vote_fence(other, a) == fence),
                s.stored(other, a),
            ),
        ),
    )
    return Step(conditions, after)


def raise_fence(s: State, node: Term, attempt: Term) -> Step:
    """A node applies RAISE. Its acknowledgement matters only to a round that may still be won.

    Rule: core/protocol/src/node/entry.rs raise, core/protocol/src/round.rs raised
    """
    conditions = {
        "the fence is decided": s.fixed(attempt),
        "the node's vote was counted into it": s.weighed(node, attempt),
        "the node has the keys": s.every(
            lambda resource: implies(s.uses(attempt, resource), s.holds(node, resource, attempt))
        ),
    }
    may_win = negated(either(s.won(attempt), s.over(attempt), s.is_past(attempt)))
    is_stored = either(s.stored(node, attempt), may_win)
    kept = keep(s, node, attempt, s.fence(attempt))
    return Step(conditions, kept.but(stored=changed(s.stored, (node, attempt), is_stored)))


def expire_counter(s: State, node: Term, resource: Term, counter: Term) -> Step:
    """A node forgets a fence counter whose time is over by its wall clock. `counter` is what is
    left: nothing, which counts as 0.

    Rule: core/protocol/src/fence.rs fence_memory, core/protocol/src/node/entry.rs get
    """
    conditions = {
        "its time is over": s.wall(node) >= s.counter_until(node, resource),
        "nothing larger is left": counter <= s.counter(node, resource),
    }
    return Step(conditions, s.but(counter=changed(s.counter, (node, resource), counter)))
