"""What is assumed of the constants, and the lemmas that justify it.

The axioms are all that the proof knows about sets of nodes, drift, guard and clocks. `lemmas` shows
that the arithmetic of the code makes those about time true. They are the only place where rates and
factors occur, and are proved for all real numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from proof.logic import Term, both, either, implies, negated
from proof.state import State


def axioms(s: State) -> dict[str, Term]:
    """Returns what is assumed of the constants, by name."""
    return {
        "any two majorities share a node": s.every(
            lambda some, others: implies(
                both(s.majority(some), s.majority(others)),
                negated(
                    s.every(
                        lambda node: negated(both(s.member(node, some), s.member(node, others)))
                    )
                ),
            )
        ),
        "a lease ends before its keys": both(
            s.every(lambda a: s.validity(a) <= s.ttl(a)),
            s.every(lambda x: s.extension_validity(x) <= s.extension_ttl(x)),
        ),
        "the guard is at least the longest validity": both(
            s.every(lambda a: s.validity(a) <= s.guard),
            s.every(lambda x: s.extension_validity(x) <= s.guard),
        ),
        "the guard's wait allows for the clocks": s.every(lambda client: s.wait(client) >= s.guard),
        "times are positive": both(
            s.every(lambda a: s.validity(a) > 0),
            s.every(lambda x: s.extension_validity(x) > 0),
            s.guard > 0,
            s.window >= 0,
            s.set_back >= 0,
            s.spread >= 0,
            s.step > 0,
        ),
        "a counter is kept longer than clocks are set back": (
            s.memory > s.set_back + s.window + s.window
        ),
        "the guard exceeds the differences between wall clocks, if counters can be lost": implies(
            s.lossy, s.guard > s.spread + s.spread + s.window + s.window
        ),
        "an attempt excludes others from the resources for which it is exclusive": both(
            s.every(
                lambda a, b: implies(
                    s.excludes(a, b),
                    both(
                        a != b,
                        s.uses(a, s.common(a, b)),
                        s.uses(b, s.common(a, b)),
                        s.writer(a, s.common(a, b)),
                    ),
                )
            ),
            s.every(
                lambda resource, a, b: implies(
                    both(
                        a != b,
                        s.uses(a, resource),
                        s.uses(b, resource),
                        s.writer(a, resource),
                    ),
                    s.excludes(a, b),
                )
            ),
        ),
        "an attempt is for at least one resource": s.every(lambda a: s.uses(a, s.first(a))),
        "an adopter or upgrade takes over another lease of the same resources": s.every(
            lambda resource, a: implies(
                either(s.adopter(a), s.upgrader(a)),
                both(s.parent(a) != a, s.uses(a, resource) == s.uses(s.parent(a), resource)),
            )
        ),
        "an adopter or upgrade has the limit of that lease": s.every(
            lambda a: implies(
                either(s.adopter(a), s.upgrader(a)), s.limit(a) == s.limit(s.parent(a))
            )
        ),
        "an upgrade is exclusive and no adopter": s.every(
            lambda resource, a: implies(
                s.upgrader(a),
                both(negated(s.adopter(a)), implies(s.uses(a, resource), s.writer(a, resource))),
            )
        ),
    }


def initial(s: State) -> dict[str, Term]:
    """Returns what holds at the beginning: nothing is sent, granted or stored. Clocks may show
    anything."""
    return {
        "no round has begun": s.every(
            lambda a: negated(either(s.sent(a), s.won(a), s.over(a), s.fixed(a), s.downgraded(a)))
        ),
        "no extension has begun": s.every(lambda x: negated(s.asked(x))),
        "no node has granted anything": s.every(
            lambda node, a: negated(
                either(
                    s.granted(node, a),
                    s.counted(node, a),
                    s.promised(node, a),
                    s.trusted(node, a),
                    s.weighed(node, a),
                    s.stored(node, a),
                    s.swapped(node, a),
                    s.yields(node, a),
                )
            )
        ),
        "no node has confirmed anything": s.every(
            lambda node, x: negated(
                either(s.applied(node, x), s.confirmed(node, x), s.acknowledged(node, x))
            )
        ),
        "no node has a key": s.every(lambda node, resource, a: negated(s.holds(node, resource, a))),
        "no client has examined a node": s.every(
            lambda client, node: negated(s.looked(client, node))
        ),
        "nodes began in the past": s.every(lambda node: s.forgot_at(node) <= s.now),
        "wall clocks are at their top": s.every(lambda node: s.wall(node) == s.wall_top(node)),
        "wall clocks are right, if counters can be lost": implies(
            s.lossy,
            s.every(
                lambda node: both(
                    s.wall(node) <= s.now + s.spread, s.wall(node) >= s.now - s.spread
                )
            ),
        ),
        "counters are those of earlier leases": s.every(
            lambda node, resource: both(
                s.counter(node, resource) == s.mark(node, resource),
                s.counter(node, resource) <= s.counter_until(node, resource) - s.memory + s.window,
                implies(s.lossy, s.mark(node, resource) <= s.now + s.spread + s.window),
            )
        ),
    }


@dataclass(frozen=True)
class Lemma:
    """A fact of real arithmetic: whatever satisfies the premises satisfies the conclusion."""

    name: str
    rule: str
    premises: tuple[Term, ...]
    conclusion: Term


def lemmas(r: Mapping[str, Term]) -> Iterator[Lemma]:
    """Yields the lemmas about drift and the guard. `r` has a real number for each name.

    e is the largest error of any clock's rate, f the drift factor, m the 2 ms of rounding, ttl the
    ttl, T the guard, d and D their drift allowances. One second of true time is 1 + e in the unit
    of `now`. The condition on f is the one that the documentation asks for: f >= 2e / (1 + e).
    """
    e, f, m, ttl, guard = r["e"], r["f"], r["m"], r["ttl"], r["T"]
    allowed = (e >= 0, e < 1, f * (1 + e) >= 2 * e, f <= 1, m >= 0, ttl > 0, guard >= ttl)
    validity, wait = ttl - (f * ttl + m), guard + (f * guard + m)
    time, clock = r["time"], r["clock"]
    rates = (time >= 0, clock >= (1 - e) * time, clock <= (1 + e) * time)
    term = "core/protocol/src/term.rs"
    yield Lemma(
        "a lease ends before its keys",
        f"{term} end",
        allowed,
        # (1 + e) / (1 - e) * validity <= ttl, without the division.
        (1 + e) * validity <= (1 - e) * ttl,
    )
    yield Lemma(
        "the guard is at least the longest validity",
        f"{term} gone",
        allowed,
        (1 + e) * validity <= (1 - e) * guard,
    )
    yield Lemma("the guard's wait allows for the clocks", f"{term} gone", allowed, wait >= guard)
    yield Lemma(
        "no client's clock is too slow, scaled up",
        f"{term} Moment",
        (*allowed, *rates),
        (1 + e) * clock >= (1 - e) * (1 + e) * time,
    )
    yield Lemma(
        "no client's clock is too fast",
        f"{term} Moment",
        (*allowed, *rates),
        clock <= (1 + e) * time,
    )
    yield Lemma(
        "a round's time by a client's clock is nearly true",
        "core/protocol/src/guard.rs looked",
        (*allowed, *rates, clock <= validity),
        (1 + e) * time <= clock + wait - guard,
    )
    # A node's uptime is told by its own clock, in whole seconds, of which the guard subtracts one.
    up = r["up"]
    yield Lemma(
        "the node reports no more than its true uptime",
        "core/protocol/src/guard.rs looked",
        (*allowed, time >= 0, clock >= 0, clock <= (1 + e) * time, up <= clock + 1),
        up - 1 <= (1 + e) * time,
    )
    # The fence's constants, in seconds of true time: 60 s of memory, a window of 2 s.
    yield Lemma(
        "a counter is kept longer than clocks are set back",
        "core/protocol/src/fence.rs fence_memory",
        (e >= 0, r["back"] < 56),
        60 * (1 + e) > (1 + e) * r["back"] + 2 * (2 * (1 + e)),
    )


NAMES = ("e", "f", "m", "ttl", "T", "time", "clock", "up", "back")
"""The numbers that the lemmas speak of."""
