"""The checker of the chaos run: pure functions from histories to violations.

All processes run on one machine, so their times (nanoseconds of CLOCK_MONOTONIC) can be compared.
The checks are conservative: every reported violation is real, whatever the delay between an event
and the entry that records it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any

Entry = Mapping[str, Any]
"""An entry of a history. client.py documents the format."""


@dataclass
class Lease:
    """A lease, as its holder recorded it. If the holder was killed, the record ends early.

    A lease of several resources is represented by several objects with the same token.
    """

    client: str
    resource: str
    token: str
    fence: int
    extended: bool | int
    """Whether the lease is renewed. A number is its heartbeat timeout, in milliseconds: its holder
    sends no heartbeat but the acquire."""
    asked: int
    granted: int
    """The time just after the acquire returned. The lease began earlier."""
    seen: int | None = None
    """The last time at which the lease was certainly valid.

    The holder reads the clock, and then checks the lease. A lease never becomes valid again, so if
    it is valid at the check, it was also valid at the time that was read before.
    """
    promised: int = 0
    """The earliest time at which the lease can end if it is not released.

    If a holder is killed or stopped, nothing more is known about the end of its lease. No other
    client may get the lock before this time. The holder reads the clock before `remaining`, so the
    real end is a little later.
    """
    release_began: int | None = None
    """The time just before `release`, or before a `detach` or `hand_over` that succeeded, or a
    `hand_over` of whose result the client has left no record."""
    shared: bool = False
    """Whether the lease was granted in shared mode."""
    downgraded: int | None = None
    """The time just before the lease was made shared."""
    permits: int = 0
    """How many permits were asked for; 0 for a lock. Each slot is a resource."""
    giver: str | None = None
    """The token of the lease that this one was adopted from."""
    detach_began: int = 0
    within: int = 0
    """How long the lease was to be kept for an adopter."""
    named: str | None = None
    """The client that a leader has named as its successor."""
    successor: str | None = None
    """The same, if the nodes have given it the keys of the lease."""
    kept: int = 0
    """The time until which the nodes keep a lease that was detached, and that nobody adopted."""
    lost: bool = False
    is_daemons: bool = False
    """Whether the client holds it through a daemon, which releases it when the client ends."""

    def apply(self, entry: Entry) -> None:
        """Updates this lease from an entry of the history."""
        match entry["event"]:
            case "release":
                self.release_began = entry["at"]
            case "detach":
                self.detach_began, self.within = entry["at"], entry["within"] * 1_000_000
            case "detached":
                if entry["ok"]:
                    # The lease was valid when `detach` was called, and is not when it returns.
                    self.seen = self.release_began = self.detach_began
                    self.kept = self.detach_began + self.within
            case "downgrade":
                self.downgraded = self.downgraded or entry["at"]
            case "upgrade":
                # Until the result is known, the lease may end at any time.
                self.release_began = self.detach_began = entry["at"]
            case "upgraded" if entry["ok"]:
                self.seen = self.release_began
            case "upgraded" if entry["left"]:
                self.release_began, self.seen = None, entry["at"]
            case "hand":
                # Until the result is known, the lease may end at any time: another client gets its
                # keys before this one records that.
                self.release_began = self.detach_began = entry["at"]
                self.named = entry["to"]
            case "handed":
                if entry["ok"]:
                    self.seen = self.release_began = self.detach_began
                    self.successor = self.named
                else:
                    # Either it is still valid, or it has ended since the call.
                    self.release_began = None if entry["left"] else self.detach_began
            case "released" if entry["ok"]:
                # `release` returned True, so the lease was valid when it was called.
                self.seen = self.release_began
            case "released":
                self.lost = True
            case "disconnected":
                # The nodes keep the lease, unless the daemon has detached it before it ended.
                if self.release_began is None and self.detach_began:
                    self.release_began = self.detach_began
            case _ if entry["left"] > 0:
                self.seen = entry["at"]
                self.promised = max(self.promised, entry["at"] + entry["left"])
            case _:
                self.lost = True


@dataclass(frozen=True)
class Violation:
    """A violation of a guarantee of the lock, or a client that crashed or hangs."""

    kind: str
    at: int
    text: str
    resource: str | None = None
    tokens: tuple[str, ...] = ()
    """The tokens of the affected leases."""


def leases(histories: Sequence[tuple[str, Iterable[Entry]]]) -> list[Lease]:
    """Returns all leases of all clients, in the order in which they were granted."""
    found: dict[str, list[Lease]] = defaultdict(list)
    for client, entries in histories:
        # A process that is about to be killed may still get leases.
        killing: int | None = None
        for entry in entries:
            if entry["event"] in ("killing", "killed"):
                killing = entry["at"] if entry["event"] == "killing" else None
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
                        shared=resource in entry["shared"],
                        permits=entry.get("permits", 0),
                        giver=entry.get("giver"),
                        is_daemons=entry.get("owner") == "daemon",
                        release_began=killing if entry.get("owner") == "daemon" else None,
                    )
                    for resource, fence in entry["fences"].items()
                )
            if entry["event"] in ("killing", "drained"):
                for lease in chain.from_iterable(found.values()):
                    if lease.is_daemons and lease.client == client and not lease.release_began:
                        lease.release_began = entry["at"]
            for lease in found[entry["token"]] if "token" in entry else ():
                lease.apply(entry)
    # What is kept for an adopter ends when one has it, or may have had it as it was cancelled. The
    # daemon releases what it has adopted for a client that has ended.
    for _, entries in histories:
        for entry in entries:
            is_cut_off = entry["event"] == "ask" and entry.get("owner") == "daemon"
            if entry["event"] in ("granted", "cancel") or is_cut_off:
                for lease in found.get(entry.get("giver") or "", ()):
                    lease.kept = min(lease.kept, entry.get("asked", entry["at"]))
    of = [lease for held in found.values() for lease in held]
    return sorted(of, key=lambda lease: lease.granted)


def by_resource(of: Iterable[Lease]) -> Iterator[tuple[str, list[Lease]]]:
    """Yields each resource with its leases, in the given order."""
    found: dict[str, list[Lease]] = defaultdict(list)
    for lease in of:
        found[lease.resource].append(lease)
    yield from found.items()


def exclusion(of: Iterable[Lease]) -> list[Violation]:
    """Returns violations of the rule that two leases of a resource of which one is exclusive never
    overlap."""
    found: dict[tuple[str, str], Violation] = {}
    for resource, held in by_resource(lease for lease in of if lease.seen is not None):
        for kind, end in KINDS_OF_OVERLAP.items():
            for first, second in overlaps(held, end):
                text = (
                    f"{second.client} got {resource} (fence {second.fence})"
                    f" {milliseconds(end(first) - second.granted)} before the lease of"
                    f" {first.client} (fence {first.fence}) ended, as far as it was"
                    f" {ENDS[kind]}"
                )
                tokens = (first.token, second.token)
                violation = Violation(kind, second.granted, text, resource, tokens)
                found.setdefault(tokens, violation)
    return list(found.values())


def overlaps(held: Sequence[Lease], end: Callable[[Lease], int]) -> Iterator[tuple[Lease, Lease]]:
    """Yields a pair for each lease that was granted before all earlier leases had ended. A shared
    lease may be granted before others that are shared at that time.

    The pair is the earlier lease that ends last, and this lease.
    """

    def end_alone(lease: Lease) -> int:
        """Returns until when the lease keeps out readers, too."""
        if lease.shared:
            return 0
        return end(lease) if lease.downgraded is None else min(end(lease), lease.downgraded)

    last: Lease | None = None
    last_alone: Lease | None = None
    for lease in held:
        until, before = (end_alone, last_alone) if lease.shared else (end, last)
        if before is not None and lease.granted < until(before):
            yield before, lease
        last = lease if last is None else max(last, lease, key=end)
        last_alone = lease if last_alone is None else max(last_alone, lease, key=end_alone)


def end_seen(lease: Lease) -> int:
    """Returns the last time at which the holder saw the lease valid. The lease may end later."""
    return lease.granted if lease.seen is None else lease.seen


def end_promised(lease: Lease) -> int:
    """Returns the promised end of the lease, or the time of its release if that is earlier.

    No other client may get the lock before this time, even if most nodes restarted: the restart
    guard keeps restarted nodes from voting for at least that long.
    """
    if lease.release_began is None:
        return lease.promised
    return min(lease.promised, lease.release_began)


def end_kept(lease: Lease) -> int:
    """Returns the time until which a detached lease is kept for an adopter. Nobody else may get the
    lock before."""
    return lease.kept


KINDS_OF_OVERLAP = {
    "overlap": end_seen,
    "broken promise": end_promised,
    "broken hand-over": end_kept,
}
ENDS = {
    "overlap": "seen valid",
    "broken promise": "promised",
    "broken hand-over": "kept for an adopter",
}


def adoptions(of: Iterable[Lease]) -> list[Violation]:
    """Returns violations of the rule that at most one client adopts a lease."""
    found: list[Violation] = []
    adopters: dict[tuple[str, str], Lease] = {}
    for lease in of:
        if lease.giver is not None:
            other = adopters.setdefault((lease.giver, lease.resource), lease)
            if other is not lease:
                text = f"{other.client} and {lease.client} adopted the same lease"
                tokens = (lease.giver, other.token, lease.token)
                found.append(
                    Violation("adopted twice", lease.granted, text, lease.resource, tokens)
                )
    return found


def fences(of: Iterable[Lease]) -> list[Violation]:
    """Returns violations of the rule that a lease has a larger fence than all earlier leases. Two
    shared leases may have any fences, also the same.

    A lease is earlier than another if it was granted before the other acquire was called. It is
    also earlier if it was seen valid first: leases do not overlap, so it also ended first. The
    recorded times of grants alone do not give the order: a holder that is stopped while its acquire
    returns records the grant much later, perhaps after the lease has ended.
    """
    found = []
    for resource, all_held in by_resource(of):
        unique: dict[int, Lease] = {}
        for lease in all_held:
            other = unique.setdefault(lease.fence, lease)
            if other is not lease and not (other.shared and lease.shared):
                text = f"{other.client} and {lease.client} have the same fence {lease.fence}"
                found.append(Violation("duplicate fence", lease.granted, text, resource))
        moments = [lease.granted for lease in all_held]
        largest = list(accumulate((lease.fence for lease in all_held), max))
        alone = (0 if lease.shared else lease.fence for lease in all_held)
        largest_alone = list(accumulate(alone, max))
        for lease in all_held:
            earlier = bisect_left(moments, lease.asked)
            before = (largest_alone if lease.shared else largest)[earlier - 1] if earlier else 0
            if before > lease.fence:
                text = f"{lease.client} was granted {lease.fence} after {before}"
                found.append(Violation("fence order", lease.granted, text, resource))
        seen = [lease for lease in all_held if lease.seen is not None]
        for first, second in pairwise(seen):
            if first.fence > second.fence and not (first.shared and second.shared):
                text = f"{second.client} held {second.fence} after {first.client} {first.fence}"
                found.append(Violation("fence order", second.granted, text, resource))
    return found


def successions(
    histories: Iterable[tuple[str, Iterable[Entry]]], of: Iterable[Lease], ttl: int
) -> list[Violation]:
    """Returns violations of the rule that the successor of a leader is the one that it named.

    A successor that was killed or stopped meanwhile may have left no record of its term. One that
    was cut off gives the keys back. They are kept for it for `ttl` nanoseconds.
    """
    hits = {
        client: [entry["at"] for entry in entries if entry["event"] in ("killed", "stopped")]
        for client, entries in histories
    }
    found = []
    for resource, held in by_resource(of):
        for first, second in pairwise(sorted(held, key=lambda lease: lease.fence)):
            if first.successor is None or second.client == first.successor:
                continue
            if second.granted > first.detach_began + ttl:
                continue
            if not any(first.detach_began < at < second.granted for at in hits[first.successor]):
                text = f"{first.client} handed over to {first.successor}, not to {second.client}"
                tokens = (first.token, second.token)
                found.append(Violation("successor", second.granted, text, resource, tokens))
    return found


def observations(
    histories: Iterable[tuple[str, Iterable[Entry]]], of: Iterable[Lease]
) -> list[Violation]:
    """Returns violations of the rules that the fences of the leaders that an observer is told of
    grow, and that each is the fence of the leader's lease."""
    leaders = {(lease.resource, lease.fence): lease.client for lease in of}
    found = []
    for client, entries in histories:
        last: dict[int, int] = defaultdict(int)
        for entry in entries:
            if entry["event"] != "observed":
                continue
            fence, holder, resource = entry["fence"], entry["holder"], entry["resource"]
            if fence <= last[entry["process"]]:
                text = f"{client} was told of {fence} after {last[entry['process']]}"
                found.append(Violation("observed order", entry["at"], text, resource))
            last[entry["process"]] = fence
            if leaders.get((resource, fence), holder) != holder:
                leader = leaders[resource, fence]
                text = (
                    f"{client} was told of {holder} with fence {fence}, which is that of {leader}"
                )
                found.append(Violation("observed leader", entry["at"], text, resource))
    return found


def completeness(histories: Iterable[tuple[str, Iterable[Entry]]]) -> list[Violation]:
    """Returns violations of the rule that a lease has exactly the requested resources."""
    return [
        Violation(
            "other resources",
            entry["at"],
            f"{client} requested {', '.join(entry['resources'])}, and got"
            f" {', '.join(entry['fences']) or 'nothing'}",
        )
        for client, entries in histories
        for entry in entries
        if entry["event"] == "granted" and sorted(entry["fences"]) != sorted(entry["resources"])
    ]


def limit(of: Iterable[Lease], most: int) -> list[Violation]:
    """Returns violations of the rules that a lease has as many permits as were asked for, and that
    at most `most` permits are held at the same time.

    This does not depend on the numbers of the slots: `exclusion` checks that none is held twice.
    """
    held = [lease for lease in of if lease.permits]
    slots = Counter(lease.token for lease in held)
    found = []
    for lease in {lease.token: lease for lease in held}.values():
        if slots[lease.token] != lease.permits:
            text = f"{lease.client} requested {lease.permits} permits, and got {slots[lease.token]}"
            found.append(Violation("other permits", lease.granted, text, lease.resource))
    now: list[Lease] = []
    for lease in held:
        if lease.seen is None:
            continue
        at, token = lease.granted, lease.token
        now = [each for each in now if each.token == token or end_seen(each) > at] + [lease]
        if len(now) > most:
            text = f"{lease.client} got a permit, so that {len(now)} are held"
            tokens = tuple(each.token for each in now)
            found.append(Violation("too many permits", at, text, lease.resource, tokens))
    return found


def truth(of: Iterable[Lease], ttl: int) -> list[Violation]:
    """Returns a violation for each lease that claimed to be valid for too long.

    A lease that is not renewed must end within `ttl` nanoseconds of its grant, and a lease without
    a heartbeat within that time after its heartbeat timeout.
    """
    return [
        Violation(
            "valid too long",
            lease.granted,
            f"the lease of {lease.client} with fence {lease.fence}, which is renewed for"
            f" {int(lease.extended)} ms, claims to be valid for"
            f" {milliseconds(lease.promised - lease.granted)} in total",
            lease.resource,
        )
        for lease in of
        if lease.extended is not True
        and lease.promised - lease.granted > ttl + int(lease.extended) * 1_000_000
    ]


def milliseconds(nanoseconds: int) -> str:
    """Formats a duration in milliseconds."""
    return f"{nanoseconds / 1e6:.3f} ms"


def register(entries: Iterable[Entry]) -> list[Violation]:
    """Returns a violation for each lost update: a value that is not the previous value plus one.

    A write after the end of a lease must not cause a lost update either: the register refuses
    outdated fences.
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
    """Returns violations of the rule that the register refuses no client with a valid lease.

    The client checks its lease after the register refused a request. If the lease is still valid,
    another client used a larger fence during the lease: either there were two holders, or the
    fences of two consecutive leases did not increase.
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
    histories: Sequence[tuple[str, Sequence[Entry]]],
    written: Iterable[Entry],
    ttl: int,
    permits: int,
) -> list[Violation]:
    """Returns all violations in the histories of the clients and of the register, by time.
    `permits` is the limit of the semaphore."""
    of = leases(histories)
    found = [
        *exclusion(of),
        *fences(of),
        *adoptions(of),
        *successions(histories, of, ttl),
        *observations(histories, of),
        *completeness(histories),
        *truth(of, ttl),
        *limit(of, permits),
        *register(written),
        *refusals(histories, of),
    ]
    return sorted(found, key=lambda violation: violation.at)
