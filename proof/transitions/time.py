"""Time passes, and keys and counters expire."""

from __future__ import annotations

from proof.logic import Function, Term, both, changed, implies, larger, mapped
from proof.state import State
from proof.step import ASSUMED, Step


def tick(
    s: State,
    now: Term,
    node_clocks: Function,
    client_clocks: Function,
    guard_clocks: Function,
    walls: Function,
) -> Step:
    """Time passes. Every clock goes on, at its own rate and within the allowed error.

    `client_clocks` and `guard_clocks` are two readings of the same clocks. The one is never slower
    than `now`, the other never faster; their difference over one validity is bounded by a lemma.
    A node's clock may be set back, which only keeps keys for longer. (Forward: see `memory.py`.)

    Rule: core/protocol/src/term.rs Moment, core/protocol/src/clocks.rs NodeClocks
    """

    def slack(client: Term) -> Term:
        return s.wait(client) - s.guard

    conditions = {
        "time does not go back": now >= s.now,
        ASSUMED + "(b) no node's clock is too fast": s.every(
            lambda node: node_clocks(node) - s.node_clock(node) <= now - s.now
        ),
        ASSUMED + "(b) no client's clock is too slow": s.every(
            lambda client: client_clocks(client) - s.client_clock(client) >= now - s.now
        ),
        ASSUMED + "(b) no client's clock goes back": s.every(
            lambda client: guard_clocks(client) >= s.guard_clock(client)
        ),
        ASSUMED + "(b) no client's clock is too fast": s.every(
            lambda client: guard_clocks(client) - s.guard_clock(client) <= now - s.now
        ),
        ASSUMED + "(b) a round's time by a client's clock is nearly true": s.every(
            lambda a: implies(
                both(
                    s.sent(a),
                    client_clocks(s.client(a)) - s.sent_clock(a) < s.validity(a),
                ),
                now - s.sent_at(a)
                <= guard_clocks(s.client(a)) - s.sent_guard(a) + slack(s.client(a)),
            )
        ),
        ASSUMED + "(b) an extension's time by a client's clock is nearly true": s.every(
            lambda x: implies(
                both(
                    s.asked(x),
                    client_clocks(s.client(s.lease(x))) - s.asked_clock(x)
                    < s.extension_validity(x),
                ),
                now - s.asked_at(x)
                <= guard_clocks(s.client(s.lease(x)))
                - s.asked_guard(x)
                + slack(s.client(s.lease(x))),
            )
        ),
        ASSUMED + "no node's wall clock is set back too far": s.every(
            lambda node: walls(node) >= s.wall_top(node) - s.set_back
        ),
        ASSUMED + "the nodes' wall clocks are right, if counters can be lost": implies(
            s.lossy,
            s.every(
                lambda node: both(walls(node) <= now + s.spread, walls(node) >= now - s.spread)
            ),
        ),
    }
    after = s.but(
        now=now,
        node_clock=mapped(s.node_clock, lambda node: node_clocks(node)),
        client_clock=mapped(s.client_clock, lambda client: client_clocks(client)),
        guard_clock=mapped(s.guard_clock, lambda client: guard_clocks(client)),
        wall=mapped(s.wall, lambda node: walls(node)),
        wall_top=mapped(s.wall_top, lambda node: larger(walls(node), s.wall_top(node))),
    )
    return Step(conditions, after)


def expire(s: State, node: Term, resource: Term, attempt: Term) -> Step:
    """A node deletes a key whose time is over by the node's clock.

    Rule: core/protocol/src/node/entry.rs token
    """
    conditions = {
        "the node has the key": s.holds(node, resource, attempt),
        "its time is over": s.node_clock(node) >= s.expires(node, resource, attempt),
    }
    return Step(conditions, s.but(holds=changed(s.holds, (node, resource, attempt), False)))
