"""One round of an acquire: ACQUIRE is sent, nodes grant it, the client counts votes and wins."""

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
from proof.transitions.fences import keep, next_fence


def begin_round(s: State, attempt: Term) -> Step:
    """A client reads its clock and begins a round. From now on, ACQUIRE can arrive at any node, at
    any time, or never. An adopter's TRANSFER is sent only after the lease ended for its holder.

    The attempt names its resources: of a semaphore, any slots below the limit that the client has.
    The client chooses them for any reason, such as hints of nodes, which may be wrong.

    An upgrade's TRANSFER may be sent while the lease that it upgrades is valid.

    Rule: core/protocol/src/round.rs new, core/protocol/src/slots.rs choose,
    core/src/wire/keys.rs permit
    """
    takes_over = either(s.adopter(attempt), s.upgrader(attempt))
    conditions = {
        ASSUMED + "the token is new": negated(s.sent(attempt)),
        "its slots are below its limit": either(takes_over, s.is_in_limit(attempt)),
        "each client has the same keys for these slots": either(
            takes_over, s.has_usual_keys(attempt)
        ),
        "what is taken over is a lease": implies(s.adopter(attempt), s.won(s.parent(attempt))),
        "a lease that is taken over has ended": implies(
            s.adopter(attempt), s.over(s.parent(attempt))
        ),
        "what is upgraded is a lease of the same client": implies(
            s.upgrader(attempt),
            both(s.won(s.parent(attempt)), s.client(s.parent(attempt)) == s.client(attempt)),
        ),
    }
    client, key = s.client(attempt), (attempt,)
    after = s.but(
        sent=changed(s.sent, key, True),
        sent_at=changed(s.sent_at, key, s.now),
        sent_clock=changed(s.sent_clock, key, s.client_clock(client)),
        sent_guard=changed(s.sent_guard, key, s.guard_clock(client)),
    )
    return Step(conditions, after)


def vote(s: State, node: Term, attempt: Term, fence: Term, pause: Term, holds: Function) -> State:
    """The state after a node granted an attempt, and set the keys a `pause` after it had read them
    and its clock.

    It promises to keep the keys until `validity` after the round began, if the guard can let its
    vote count. The promise is an idea of the proof: nothing stores it. `holds` is the state of the
    keys before the attempt's own are set.
    """
    is_late_enough = s.sent_at(attempt) >= s.forgot_at(node) + s.guard
    may_count = either(negated(s.guarded), is_late_enough)
    until = s.sent_at(attempt) + s.validity(attempt)
    longer = choose(s.promised(node, attempt), larger(s.promise(node, attempt), until), until)
    key, expiry = (node, attempt), s.node_clock(node) + pause + s.ttl(attempt)

    def is_set(other: Term, resource: Term, a: Term) -> Term:
        return both(other == node, a == attempt, s.uses(attempt, resource))

    return keep(s, node, attempt, fence).but(
        holds=mapped(s.holds, lambda *at: either(is_set(*at), holds(*at))),
        expires=mapped(s.expires, lambda *at: choose(is_set(*at), expiry, s.expires(*at))),
        granted=changed(s.granted, key, True),
        granted_since=changed(s.granted_since, key, s.forgot_at(node)),
        vote_fence=changed(s.vote_fence, key, fence),
        trusted=changed(s.trusted, key, may_count),
        promised=changed(s.promised, key, either(s.promised(node, attempt), may_count)),
        promise=changed(s.promise, key, choose(may_count, longer, s.promise(node, attempt))),
        stand_in=changed(s.stand_in, key, attempt),
    )


def may_vote(s: State, node: Term, attempt: Term, pause: Term) -> dict[str, Term]:
    """Conditions of every grant."""
    return {
        "the pause is not negative": pause >= 0,
        "the request was sent": s.sent(attempt),
        ASSUMED + "a node applies an ACQUIRE once": negated(s.granted(node, attempt)),
        "it was not answered before the lease was detached": negated(
            both(s.settled(node, attempt), s.over(attempt))
        ),
    }


def has_no_other(s: State, node: Term, attempt: Term, but: Function = lambda b: False) -> Term:
    """Whether a node can set the attempt's keys beside all that it has, but some."""
    return s.every(
        lambda resource, b: implies(
            both(s.uses(attempt, resource), s.holds(node, resource, b), negated(but(b))),
            both(
                b != attempt,
                negated(s.writer(attempt, resource)),
                negated(s.locks(node, resource, b)),
            ),
        )
    )


def grant(
    s: State,
    node: Term,
    attempt: Term,
    fence: Term,
    proposal: Term,
    resource: Term,
    pause: Term,
) -> Step:
    """A node applies ACQUIRE and grants it: it sets the keys of all resources. A resource in shared
    mode may have other keys in shared mode.

    Rule: core/protocol/src/node/entry.rs acquire, core/protocol/src/fence.rs next_fence
    """
    conditions = {
        **may_vote(s, node, attempt, pause),
        "it takes over no lease": negated(either(s.adopter(attempt), s.upgrader(attempt))),
        "all resources are free": has_no_other(s, node, attempt),
        **next_fence(s, node, attempt, fence, proposal, resource),
    }
    return Step(conditions, vote(s, node, attempt, fence, pause, s.holds))


def count_vote(s: State, node: Term, attempt: Term) -> Step:
    """A client counts a grant, with the restart guard if that is on.

    An adopter counts only nodes that have answered all requests of the giver.

    Rule: core/protocol/src/guard.rs counts, core/protocol/src/round.rs vote
    """
    client = s.client(attempt)
    conditions = {
        "the node granted": s.granted(node, attempt),
        "the client knows the node's memory": implies(s.guarded, s.looked(client, node)),
        "the guard is over": implies(
            s.guarded, s.sent_guard(attempt) >= s.counts_from(client, node)
        ),
        ASSUMED + "a node that restarts is examined before its votes count": implies(
            s.guarded, s.newest(client, node) >= s.granted_since(node, attempt)
        ),
        "it may vote on an adoption": implies(
            s.adopter(attempt), s.settled(node, s.parent(attempt))
        ),
    }
    return Step(conditions, s.but(counted=changed(s.counted, (node, attempt), True)))


def win(s: State, attempt: Term, quorum: Term, keepers: Term, storers: Term) -> Step:
    """A client wins the round with the votes of a majority, `quorum`, if another majority, or the
    same, stores the fence. `keepers` matters without the guard only: see `memory.py`.

    Rule: core/protocol/src/round.rs win, core/protocol/src/term.rs end
    """
    end = s.sent_clock(attempt) + s.validity(attempt)
    conditions = {
        "the round goes on": both(
            s.sent(attempt), negated(s.won(attempt)), negated(s.over(attempt))
        ),
        "the voters are a majority": s.majority(quorum),
        "their votes count": s.every(
            lambda node: implies(s.member(node, quorum), s.counted(node, attempt))
        ),
        "the validity end is ahead": s.client_clock(s.client(attempt)) < end,
        "the fence is decided": s.fixed(attempt),
        "those that store the fence are a majority": s.majority(storers),
        "they store the fence": s.every(
            lambda node: implies(s.member(node, storers), s.stored(node, attempt))
        ),
        "a lease that is upgraded has ended": implies(
            s.upgrader(attempt), s.over(s.parent(attempt))
        ),
        ASSUMED + "(c) a majority remembers its grant": implies(
            negated(s.guarded),
            both(
                s.majority(keepers),
                s.every(lambda node: implies(s.member(node, keepers), s.promised(node, attempt))),
            ),
        ),
    }
    key = (attempt,)
    after = s.but(
        won=changed(s.won, key, True),
        end=changed(s.end, key, end),
        end_at=changed(s.end_at, key, s.sent_at(attempt) + s.validity(attempt)),
        keepers=changed(s.keepers, key, choose(s.guarded, quorum, keepers)),
        swappers=changed(s.swappers, key, quorum),
        storers=changed(s.storers, key, storers),
        place=changed(s.place, key, s.wins),
        wins=s.wins + 1,
    )
    return Step(conditions, after)
