"""Nodes lose memory, and assumption (c), which replaces the restart guard where that is off."""

from __future__ import annotations

from proof.logic import Function, Term, both, changed, choose, either, implies, mapped, negated
from proof.state import State
from proof.step import ASSUMED, Step


def breaks_promises(s: State, node: Term) -> State:
    """The state after the node broke its promises.

    With the guard, the moment is enough: votes count only long after it. Without the guard,
    assumption (c) tells which promises a lease can do without.
    """

    def still(promised: Function) -> Function:
        return lambda other, thing: both(
            promised(other, thing), choose(other == node, s.guarded, True)
        )

    return s.but(
        forgot_at=changed(s.forgot_at, (node,), s.now),
        promised=mapped(s.promised, still(s.promised)),
        confirmed=mapped(s.confirmed, still(s.confirmed)),
    )


def can_do_without(s: State, node: Term) -> dict[str, Term]:
    """Assumption (c): a majority without the node remembers each valid lease."""
    return {
        ASSUMED + "(c) a majority remembers what it granted": implies(
            negated(s.guarded),
            s.every(lambda a: implies(s.valid(a), negated(s.member(node, s.keepers(a))))),
        )
    }


def is_lost_swap(s: State, node: Term, resource: Term, attempt: Term) -> Term:
    """Whether a key is of a hand-over, and the node no longer has it: an adopter's key, or the
    parent's that the node swapped away."""
    is_parent = negated(
        s.every(lambda a: negated(both(s.swapped(node, a), s.parent(a) == attempt)))
    )
    return both(negated(s.holds(node, resource, attempt)), either(s.adopter(attempt), is_parent))


def forget(
    s: State, node: Term, remembered: Function, expiries: Function, counters: Function
) -> Step:
    """A node loses memory: it restarts without some of its writes, and with the guard, clients can
    see that. Any part of its keys may be left, with any expiry. Keys that it deleted may be back,
    if it lost the deletion: those of a hand-over only if the model allows that (`rewinds`). It
    loses fence counters only if the model allows that (`lossy`).

    Rule: none (the surroundings)
    """
    conditions = {
        **can_do_without(s, node),
        "the keys were once the node's": s.every(
            lambda resource, a: implies(
                remembered(resource, a),
                either(
                    s.holds(node, resource, a),
                    both(s.uses(a, resource), either(s.granted(node, a), s.won(a))),
                ),
            )
        ),
        "they are those of one moment, so they exclude each other": s.every(
            lambda resource, a, b: implies(
                both(remembered(resource, a), remembered(resource, b), a != b),
                both(negated(s.locks(node, resource, a)), negated(s.locks(node, resource, b))),
            )
        ),
        ASSUMED + "no hand-over is lost, unless that is allowed": either(
            s.rewinds,
            s.every(
                lambda resource, a: negated(
                    both(remembered(resource, a), is_lost_swap(s, node, resource, a))
                )
            ),
        ),
        "no counter grows": s.every(
            lambda resource: counters(resource) <= s.counter(node, resource)
        ),
        ASSUMED + "counters are lost only if that is allowed": s.every(
            lambda resource: implies(
                negated(s.lossy), counters(resource) >= s.counter(node, resource)
            )
        ),
    }

    def is_held(other: Term, resource: Term, a: Term) -> Term:
        return choose(other == node, remembered(resource, a), s.holds(other, resource, a))

    def expiry(other: Term, resource: Term, a: Term) -> Term:
        return choose(other == node, expiries(resource, a), s.expires(other, resource, a))

    after = breaks_promises(s, node).but(
        holds=mapped(s.holds, is_held),
        expires=mapped(s.expires, expiry),
        counter=mapped(
            s.counter,
            lambda other, resource: choose(
                other == node, counters(resource), s.counter(other, resource)
            ),
        ),
    )
    return Step(conditions, after)


def set_clock(s: State, node: Term, clock: Term) -> Step:
    """A node's clock is set, forward or back. Forward, keys expire early, as if it forgot them.

    Rule: none (the surroundings)
    """
    after = breaks_promises(s, node)
    return Step(
        can_do_without(s, node), after.but(node_clock=changed(s.node_clock, (node,), clock))
    )


def choose_keepers(s: State, attempt: Term, keepers: Term) -> Step:
    """Assumption (c) says that some majority remembers a lease, not always the same. This changes
    which one the state names, and nothing else.

    Rule: none (the surroundings)
    """
    conditions = {
        "it is without the guard": negated(s.guarded),
        "it is a lease": s.won(attempt),
        "they are a majority": s.majority(keepers),
        "they remember": s.every(
            lambda node: implies(
                s.member(node, keepers),
                both(s.promised(node, attempt), s.promise(node, attempt) >= s.end_at(attempt)),
            )
        ),
    }
    return Step(conditions, s.but(keepers=changed(s.keepers, (attempt,), keepers)))
