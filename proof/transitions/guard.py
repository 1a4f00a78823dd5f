"""The restart guard: what clients learn about a node's memory, and from when they count it."""

from __future__ import annotations

from proof.logic import Term, both, changed, choose, larger, negated
from proof.state import State
from proof.step import ASSUMED, Step


def look(s: State, client: Term, node: Term, boot: Term, uptime: Term, is_reported: Term) -> Step:
    """A client examines a node after it connected, or later.

    The memory that answers began at `boot`; that moment is its identity. `uptime` is what the node
    reports, less a second for rounding. Without the permission for INFO, nothing is reported.

    Rule: core/protocol/src/guard.rs looked
    """
    key, wait = (client, node), s.guard_clock(client) + s.wait(client)
    is_same = both(s.looked(*key), s.reports(*key), is_reported, s.seen(*key) == boot)
    is_first = both(negated(s.looked(*key)), is_reported)
    counts_from = choose(is_first, wait - uptime, wait)
    newest = choose(s.looked(*key), larger(s.newest(*key), boot), boot)
    conditions = {
        ASSUMED + "the report is about a memory that the node has or had": (
            boot <= s.forgot_at(node)
        ),
        ASSUMED + "the node reports no more than its true uptime": uptime <= s.now - boot,
        "no uptime is negative": uptime >= 0,
    }
    after = s.but(
        looked=changed(s.looked, key, True),
        reports=changed(s.reports, key, is_reported),
        seen=changed(s.seen, key, boot),
        newest=changed(s.newest, key, newest),
        counts_from=changed(s.counts_from, key, choose(is_same, s.counts_from(*key), counts_from)),
    )
    return Step(conditions, after)


def doubt(s: State, client: Term, node: Term) -> Step:
    """A node reports that it loads data or has become a replica.

    Rule: core/protocol/src/guard.rs doubted
    """
    key = (client, node)
    later = larger(s.counts_from(*key), s.guard_clock(client) + s.wait(client))
    return Step(
        {"the client has examined the node": s.looked(*key)},
        s.but(counts_from=changed(s.counts_from, key, later)),
    )
