"""The checker of the chaos run: pure functions from histories to violations.

All processes run on one machine, so their times (nanoseconds of CLOCK_MONOTONIC) can be compared.
Everything here is on the safe side: what is called a violation is one, whatever delays and pauses
there were between a thing that happened and the line that tells of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

Entry = Mapping[str, Any]
"""A line of a history; client.py says what there is."""


@dataclass
class Lease:
    """What its holder has told of a lease, until it was killed perhaps.

    A lease of several resources is several of these, with the same token.
    """

    client: str
    resource: str
    token: str
    fence: int
    extended: bool
    asked: int
    granted: int
    """When the acquire had returned: it was called, and the lease began, before that."""
    seen: int | None = None
    """The last moment at which it was certainly valid.

    A holder reads the clock, and then looks. A lease that is valid when it looks has been valid all
    the time since the acquire returned, because one that is not never becomes valid again; so it
    was at the earlier moment that is written down.
    """
    promised: int = 0
    """Until when it was promised to be valid, at least, if it is not released.

    Of a holder that was killed or stopped we know no more than that; but nobody else may have the
    lock so long. What `remaining` tells after the clock was read ends later than what is computed
    here, by what passed in between.
    """
    given_up: int | None = None
    """When the release was about to be called."""
    lost: bool = False

    def told(self, entry: Entry) -> None:
        """What its holder told of it."""
        match entry["event"]:
            case "release":
                self.given_up = entry["at"]
            case "released" if entry["ok"]:
                # True means that it was valid when it was called, which was after this.
                self.seen = self.given_up
            case "released":
                self.lost = True
            case _ if entry["left"] > 0:
                self.seen = entry["at"]
                self.promised = max(self.promised, entry["at"] + entry["left"])
            case _:
                self.lost = True


@dataclass(frozen=True)
class Violation:
    """Something that must not happen."""

    kind: str
    at: int
    text: str
    resource: str | None = None
    tokens: tuple[str, ...] = ()
    """Of the leases concerned."""


def leases(histories: Iterable[tuple[str, Iterable[Entry]]]) -> list[Lease]:
    """All leases of all clients, in the order in which they were granted."""
    found: dict[str, list[Lease]] = defaultdict(list)
    for client, entries in histories:
        for entry in entries:
            if entry["event"] == "granted":
                found[entry["token"]] += (
                    Lease(
                        client,
                        resource,
                        entry["token"],
                        fence,
                        entry["extended"],
                        entry["asked"],
                        entry["at"],
                    )
                    for resource, fence in entry["fences"].items()
                )
            for lease in found[entry["token"]] if "token" in entry else ():
                lease.told(entry)
    of = [lease for held in found.values() for lease in held]
    return sorted(of, key=lambda lease: lease.granted)


def by_resource(of: Iterable[Lease]) -> Iterator[tuple[str, list[Lease]]]:
    """The leases of each resource, in the same order."""
    found: dict[str, list[Lease]] = defaultdict(list)
    for lease in of:
        found[lease.resource].append(lease)
    yield from found.items()


def exclusion(of: Iterable[Lease]) -> list[Violation]:
    """No two leases of a resource are valid at the same time."""
    found: dict[tuple[str, str], Violation] = {}
    for resource, held in by_resource(lease for lease in of if lease.seen is not None):
        for kind, end in KINDS_OF_OVERLAP.items():
            for first, second in overlaps(held, end):
                text = (
                    f"{second.client} got {resource} (fence {second.fence}) when {first.client}"
                    f" (fence {first.fence}) had it for {milliseconds(end(first) - second.granted)}"
                    f" more, {'as it saw' if end is end_seen else 'as it was promised'}"
                )
                tokens = (first.token, second.token)
                violation = Violation(kind, second.granted, text, resource, tokens)
                found.setdefault(tokens, violation)
    return list(found.values())


def overlaps(held: Sequence[Lease], end: Callable[[Lease], int]) -> Iterator[tuple[Lease, Lease]]:
    """Each lease that was granted before the end of an earlier one, with the longest of those."""
    last = held[0]
    for lease in held[1:]:
        if lease.granted < end(last):
            yield last, lease
        last = max(last, lease, key=end)


def end_seen(lease: Lease) -> int:
    """Its holder saw that it was valid until then; it may have been so for longer."""
    return lease.granted if lease.seen is None else lease.seen


def end_promised(lease: Lease) -> int:
    """It was to be valid until then.

    Nobody may get it earlier, not even if it was lost because most of its nodes restarted: with
    the guard, these have no vote for at least as long as the lease was promised for.
    """
    return lease.promised if lease.given_up is None else min(lease.promised, lease.given_up)


KINDS_OF_OVERLAP = {"overlap": end_seen, "broken promise": end_promised}


def fences(of: Iterable[Lease]) -> list[Violation]:
    """Every lease has a larger fence than all earlier ones of its resource.

    Earlier is one that was granted before the other was asked for, and one whose holder saw it
    valid before the other one's did: with exclusion, the whole of it was earlier. A holder that is
    stopped while its acquire returns may write that down much later, when the lease is over, which
    is why the moments in which they were granted say nothing by themselves.
    """
    found = []
    for resource, all_held in by_resource(of):
        unique: dict[int, Lease] = {}
        for lease in all_held:
            other = unique.setdefault(lease.fence, lease)
            if other is not lease:
                text = f"{other.client} and {lease.client} have the same fence {lease.fence}"
                found.append(Violation("fence twice", lease.granted, text, resource))
        moments = [lease.granted for lease in all_held]
        largest = list(accumulate((lease.fence for lease in all_held), max))
        for lease in all_held:
            earlier = bisect_left(moments, lease.asked)
            if earlier and largest[earlier - 1] > lease.fence:
                text = f"{lease.client} was granted {lease.fence} after {largest[earlier - 1]}"
                found.append(Violation("fence order", lease.granted, text, resource))
        for first, second in pairwise(lease for lease in all_held if lease.seen is not None):
            if first.fence > second.fence:
                text = f"{second.client} held {second.fence} after {first.client} {first.fence}"
                found.append(Violation("fence order", second.granted, text, resource))
    return found


def completeness(histories: Iterable[tuple[str, Iterable[Entry]]]) -> list[Violation]:
    """A lease is of all resources that were asked for, and of no other."""
    return [
        Violation(
            "other resources",
            entry["at"],
            f"{client} asked for {', '.join(entry['resources'])}, and got"
            f" {', '.join(entry['fences']) or 'nothing'}",
        )
        for client, entries in histories
        for entry in entries
        if entry["event"] == "granted" and sorted(entry["fences"]) != sorted(entry["resources"])
    ]


def truth(of: Iterable[Lease], ttl: int) -> list[Violation]:
    """A lease that nobody extends is not said to be valid for longer than its ttl (ns)."""
    return [
        Violation(
            "untruth",
            lease.granted,
            f"{lease.client} was told that {lease.fence}, which nobody extends, is valid for"
            f" {milliseconds(lease.promised - lease.granted)} in all",
            lease.resource,
        )
        for lease in of
        if not lease.extended and lease.promised - lease.granted > ttl
    ]


def milliseconds(nanoseconds: int) -> str:
    """A duration, for people."""
    return f"{nanoseconds / 1e6:.3f} ms"


def register(entries: Iterable[Entry]) -> list[Violation]:
    """No update is lost: what is written is always one more than what was there.

    The register fences reads and writes, so this holds for leases that have ended, too.
    """
    found = []
    values: dict[str, int] = defaultdict(int)
    for entry in entries:
        if not entry["ok"] or entry["event"] != "write":
            continue
        resource, value = entry["resource"], entry["value"]
        if value != values[resource] + 1:
            text = (
                f"{entry['client']} wrote {value} over {values[resource]} (fence {entry['fence']})"
            )
            found.append(Violation("lost update", entry["at"], text, resource))
        values[resource] = value
    return found


def refusals(
    histories: Iterable[tuple[str, Iterable[Entry]]], of: Iterable[Lease]
) -> list[Violation]:
    """Nobody is refused while its lease is valid.

    The holder looks after it was refused. If its lease is valid then, it was so when somebody with
    a larger fence had already used that: either there were two holders, or the fences of two that
    came one after the other did not increase.
    """
    fences = {(lease.token, lease.resource): lease.fence for lease in of}
    return [
        Violation(
            "refused while valid",
            entry["at"],
            f"the register refused {client} (fence {fences[entry['token'], entry['resource']]})",
            entry["resource"],
        )
        for client, entries in histories
        for entry in entries
        if entry["event"] == "refused" and entry["left"] > 0
    ]


def check(
    histories: Sequence[tuple[str, Sequence[Entry]]], written: Iterable[Entry], ttl: int
) -> list[Violation]:
    """All violations in the histories of the clients and of the register, in order of time."""
    of = leases(histories)
    found = [
        *exclusion(of),
        *fences(of),
        *completeness(histories),
        *truth(of, ttl),
        *register(written),
        *refusals(histories, of),
    ]
    return sorted(found, key=lambda violation: violation.at)
