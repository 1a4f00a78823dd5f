"""From slots to a limit: how many permits of a semaphore are valid at the same time.

A permit is a slot of an exclusive lease, which may have several. Two valid permits have different
numbers, since two leases of one key are not valid at the same time (`exclusion`), and all clients
have the same key for a slot (`usual_slots`). Each number is below the limit that the client has. So
the permits of clients with limits up to k have different numbers from 0 to k - 1, and are at most
k. The solver checks this last step for small k. For any k, it is the pigeonhole principle.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from proof.check import Question
from proof.logic import Term, both, either
from proof.properties import exclusion, usual_slots
from proof.state import ATTEMPT, RESOURCE, State
from proof.symbolic import Universe

LIMITS = (1, 2, 3, 4)


def permits(
    universe: Universe, s: State, number: int
) -> tuple[list[tuple[Term, Term]], list[Term]]:
    """Returns different valid permits of one semaphore: their leases and their slots, and what is
    true of them."""
    some = [
        (universe.symbol(f"lease{one}", ATTEMPT), universe.symbol(f"slot{one}", RESOURCE))
        for one in range(number)
    ]
    known = [exclusion(s), usual_slots(s)]
    for lease, slot in some:
        known += [s.valid(lease), s.uses(lease, slot), s.writes(lease, slot)]
        known += [s.semaphore(slot) == s.semaphore(some[0][1])]
    known += [
        either(lease != other, slot != another)
        for (lease, slot), (other, another) in combinations(some, 2)
    ]
    return some, known


def count_questions() -> Iterator[Question]:
    """Yields that no two permits have the same number, and for small k that no k + 1 permits have
    limits up to k."""
    universe = Universe()
    s = universe.state()
    ((_, slot), (_, another)), known = permits(universe, s, 2)
    yield Question("permits", "different numbers", [*known, s.slot(slot) == s.slot(another)])
    for limit in LIMITS:
        some, known = permits(universe, s, limit + 1)
        limits = both(*(s.limit(lease) <= limit for lease, _ in some))
        yield Question("permits", f"at most {limit}", [*known, limits])
