"""Extensions of a lease, by hand or by the renewer."""

from __future__ import annotations

from proof.logic import (
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


def begin_extension(s: State, extension: Term) -> Step:
    """The holder of a valid lease reads its clock and begins an extension. From now on, EXTEND can
    arrive at any node, at any time, or never.

    Rule: core/protocol/src/lease.rs extend
    """
    client, key = s.client(s.lease(extension)), (extension,)
    conditions = {
        "it is a new extension": negated(s.asked(extension)),
        "the lease is valid": s.valid(s.lease(extension)),
    }
    after = s.but(
        asked=changed(s.asked, key, True),
        asked_at=changed(s.asked_at, key, s.now),
        asked_clock=changed(s.asked_clock, key, s.client_clock(client)),
        asked_guard=changed(s.asked_guard, key, s.guard_clock(client)),
    )
    return Step(conditions, after)


def confirm(s: State, node: Term, extension: Term, pause: Term) -> Step:
    """A node applies EXTEND: it sets a later expiry of the keys that the lease holds, a `pause`
    after it has read them, and prolongs its promise if the guard lets its answer count.

    Rule: core/protocol/src/node/entry.rs extend, core/protocol/src/node/record.rs act_on_held
    """
    lease, key = s.lease(extension), (node, s.lease(extension))
    conditions = {
        "the request was sent": s.asked(extension),
        "the pause is not negative": pause >= 0,
        "the node has the keys": s.every(
            lambda resource: implies(s.uses(lease, resource), s.holds(node, resource, lease))
        ),
    }
    is_late_enough = s.asked_at(extension) >= s.forgot_at(node) + s.guard
    may_count = either(negated(s.guarded), is_late_enough)
    expiry = s.node_clock(node) + pause + s.extension_ttl(extension)
    until = s.asked_at(extension) + s.extension_validity(extension)
    longer = choose(s.promised(*key), larger(s.promise(*key), until), until)

    def is_set(other: Term, resource: Term, a: Term) -> Term:
        return both(other == node, a == lease, s.uses(lease, resource))

    after = s.but(
        expires=mapped(
            s.expires,
            lambda *at: choose(is_set(*at), larger(expiry, s.expires(*at)), s.expires(*at)),
        ),
        applied=changed(s.applied, (node, extension), True),
        applied_since=changed(s.applied_since, (node, extension), s.forgot_at(node)),
        confirmed=changed(
            s.confirmed, (node, extension), either(s.confirmed(node, extension), may_count)
        ),
        promised=changed(s.promised, key, either(s.promised(*key), may_count)),
        promise=changed(s.promise, key, choose(may_count, longer, s.promise(*key))),
        stand_in=changed(s.stand_in, key, lease),
    )
    return Step(conditions, after)


def count_confirmation(s: State, node: Term, extension: Term) -> Step:
    """The holder counts a confirmation, with the restart guard if that is on.

    Rule: core/protocol/src/guard.rs counts, core/protocol/src/lease.rs weigh
    """
    client = s.client(s.lease(extension))
    conditions = {
        "the node confirmed": s.applied(node, extension),
        "the client knows the node's memory": implies(s.guarded, s.looked(client, node)),
        "the guard is over": implies(
            s.guarded, s.asked_guard(extension) >= s.counts_from(client, node)
        ),
        ASSUMED + "a node that restarts is examined before its votes count": implies(
            s.guarded, s.newest(client, node) >= s.applied_since(node, extension)
        ),
    }
    after = s.but(acknowledged=changed(s.acknowledged, (node, extension), True))
    return Step(conditions, after)


def extend(s: State, extension: Term, quorum: Term, keepers: Term) -> Step:
    """The holder moves the validity end, before the old end and with a majority's confirmations.

    Rule: core/protocol/src/lease.rs extended
    """
    lease = s.lease(extension)
    end = s.asked_clock(extension) + s.extension_validity(extension)
    conditions = {
        "the extension was sent": s.asked(extension),
        "the lease is valid": s.valid(lease),
        "those that confirm are a majority": s.majority(quorum),
        "their confirmations count": s.every(
            lambda node: implies(s.member(node, quorum), s.acknowledged(node, extension))
        ),
        "the end moves forward": end > s.end(lease),
        ASSUMED + "(c) a majority remembers its confirmation": implies(
            negated(s.guarded),
            both(
                s.majority(keepers),
                s.every(
                    lambda node: implies(s.member(node, keepers), s.confirmed(node, extension))
                ),
            ),
        ),
    }
    key = (lease,)
    after = s.but(
        end=changed(s.end, key, end),
        end_at=changed(s.end_at, key, s.asked_at(extension) + s.extension_validity(extension)),
        keepers=changed(s.keepers, key, choose(s.guarded, quorum, keepers)),
    )
    return Step(conditions, after)
