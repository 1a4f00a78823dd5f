"""The checker finds each kind of violation in handwritten histories, and reports no false ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from chaos.check import Entry, check

TTL = 1000
LIMIT = 2

History = list[Entry]


def granted(
    token: str,
    asked: int,
    at: int,
    fence: int = 1,
    left: int = TTL,
    fences: Mapping[str, int] | None = None,
    **entry: Any,
) -> Entry:
    """Returns the entry of a granted lease of "r" with `fence`, or of the resources in `fences`."""
    fences = fences or {"r": fence}
    return {
        "event": "granted",
        "resources": list(fences),
        "token": token,
        "fences": fences,
        "shared": [],
        "extended": False,
        "asked": asked,
        "at": at,
        "left": left,
        **entry,
    }


def look(token: str, at: int, left: int, event: str = "look") -> Entry:
    return {"event": event, "token": token, "at": at, "left": left, "resource": "r"}


def released(token: str, at: int, ok: bool = True) -> History:
    return [
        {"event": "release", "token": token, "at": at},
        {"event": "released", "token": token, "at": at + 1, "ok": ok},
    ]


def detached(token: str, at: int, ok: bool = True) -> History:
    """The lease is kept for an adopter for 1 ms from `at` on."""
    return [
        {"event": "detach", "token": token, "at": at, "within": 1},
        {"event": "detached", "token": token, "at": at + 1, "ok": ok},
    ]


def write(value: int, ok: bool = True, resource: str = "r") -> Entry:
    return {
        "event": "write",
        "resource": resource,
        "client": "a",
        "fence": 1,
        "value": value,
        "at": value,
        "ok": ok,
    }


def kinds(*histories: History, written: History | None = None) -> list[str]:
    """Returns the kinds of violations in the histories of clients a, b, ..."""
    named = list(zip("abc", histories, strict=False))
    return [violation.kind for violation in check(named, written or [], TTL, LIMIT)]


def test_consecutive_turns_are_no_violation() -> None:
    a = [granted("1", 0, 10, fence=1), look("1", 50, 960), *released("1", 100)]
    b = [granted("2", 5, 110, fence=2), *released("2", 200)]
    c = [granted("3", 205, 210, fence=3)]
    written = [write(1), write(1, resource="other"), write(7, ok=False), write(2)]
    assert kinds(a, b, c, written=written) == []


def test_two_holders_that_saw_their_leases_valid_overlap() -> None:
    a = [granted("1", 0, 10, fence=1), look("1", 200, 810)]
    b = [granted("2", 5, 199, fence=2)]
    assert kinds(a, b) == ["overlap"]
    assert kinds(b, a) == ["overlap"]


def test_a_confirmed_release_counts_as_valid_until_its_call() -> None:
    b = [granted("2", 5, 400, fence=2)]
    assert kinds([granted("1", 0, 10, fence=1), *released("1", 401)], b) == ["overlap"]
    assert kinds([granted("1", 0, 10, fence=1), *released("1", 400)], b) == []


def test_a_lease_ends_at_the_call_of_release_even_if_it_is_not_confirmed() -> None:
    a = [granted("1", 0, 10, fence=1), *released("1", 100, ok=False)]
    assert kinds(a, [granted("2", 5, 101, fence=2)]) == []


@pytest.mark.parametrize(
    "a",
    [
        [granted("1", 0, 10, fence=1, left=900)],
        [granted("1", 0, 10, fence=1, left=500), look("1", 110, 800)],
        [granted("1", 0, 10, fence=1, left=900), look("1", 800, 0)],
    ],
    ids=["killed", "killed after an extension", "lost early"],
)
def test_a_grant_within_the_promised_validity_is_a_broken_promise(a: History) -> None:
    assert kinds(a, [granted("2", 5, 909, fence=2)]) == ["broken promise"]
    assert kinds(a, [granted("2", 5, 911, fence=2)]) == []


def test_only_readers_may_hold_a_resource_together() -> None:
    reader: dict[str, Any] = {"shared": ["r"]}
    a = [granted("1", 0, 10, fence=5, **reader), look("1", 200, 810), *released("1", 210)]
    assert kinds(a, [granted("2", 5, 20, fence=4, left=990, **reader)]) == []
    assert kinds(a, [granted("2", 5, 20, fence=6)]) == ["overlap"]
    writer = [granted("1", 0, 10, fence=5), look("1", 200, 810), *released("1", 210)]
    assert kinds(writer, [granted("2", 5, 20, fence=6, **reader)]) == ["overlap"]
    # The one that ends last is not always the one that conflicts.
    b = [granted("2", 5, 20, fence=6, **reader), *released("2", 300)]
    assert kinds(a, b, [granted("3", 5, 250, fence=7)]) == ["overlap"]


def test_at_most_as_many_permits_as_the_limit_are_held() -> None:
    a = [
        granted("1", 0, 10, fences={"s 0": 1}, permits=1),
        look("1", 100, 910),
        *released("1", 110),
    ]
    b = [granted("2", 0, 20, fences={"s 1": 1}, permits=1), look("2", 50, 970), *released("2", 60)]
    assert kinds(a, b) == []
    assert kinds(a, b, [granted("3", 0, 60, fences={"s 2": 1}, permits=1)]) == []
    assert kinds(a, b, [granted("3", 0, 55, fences={"s 2": 1}, permits=1)]) == ["too many permits"]
    both = granted("3", 0, 70, fences={"s 2": 1, "s 3": 1}, permits=2)
    assert kinds(a, b, [both]) == ["too many permits"]


def test_no_slot_is_held_twice() -> None:
    a = [
        granted("1", 0, 10, fences={"s 0": 1}, permits=1),
        look("1", 100, 910),
        *released("1", 110),
    ]
    assert kinds(a, [granted("2", 5, 50, fences={"s 0": 2}, permits=1)]) == ["overlap"]
    assert kinds(a, [granted("2", 5, 120, fences={"s 0": 2}, permits=1)]) == []
    # The fences of two slots are not ordered.
    assert kinds(a, [granted("2", 120, 130, fences={"s 1": 1}, permits=1)]) == []
    assert kinds(a, [granted("2", 120, 130, fences={"s 0": 1}, permits=1)]) == ["duplicate fence"]


def test_a_lease_has_as_many_permits_as_were_asked_for() -> None:
    assert kinds([granted("1", 0, 10, fences={"s 0": 1}, permits=2)]) == ["other permits"]
    assert kinds([granted("1", 0, 10, fences={"s 0": 1, "s 1": 1}, permits=2)]) == []


def test_a_downgraded_lease_keeps_writers_out_and_lets_readers_in() -> None:
    a = [granted("1", 0, 10, fence=5), {"event": "downgrade", "token": "1", "at": 100}]
    a += [look("1", 200, 810), *released("1", 210)]
    assert kinds(a, [granted("2", 5, 101, fence=6, shared=["r"])]) == []
    assert kinds(a, [granted("2", 5, 99, fence=6, shared=["r"])]) == ["overlap"]
    assert kinds(a, [granted("2", 5, 101, fence=6)]) == ["overlap"]


@pytest.mark.parametrize("ok", [True, False])
def test_a_lease_ends_when_it_is_upgraded(ok: bool) -> None:
    a = [granted("1", 0, 10, fence=5, shared=["r"]), look("1", 50, 960)]
    a += [{"event": "upgrade", "token": "1", "at": 100}]
    a += [{**look("1", 130, 0 if ok else 880, "upgraded"), "ok": ok}]
    expected = [] if ok else ["overlap"]
    assert kinds(a, [granted("2", 101, 120, fence=6)]) == expected


def test_fences_of_readers_may_be_equal_and_in_any_order() -> None:
    reader: dict[str, Any] = {"shared": ["r"]}
    first = [granted("1", 0, 10, fence=5, **reader), *released("1", 20)]
    for fence in (4, 5, 6):
        assert kinds(first, [granted("2", 30, 40, fence=fence, **reader)]) == []
    assert kinds(first, [granted("2", 30, 40, fence=4)]) == ["fence order", "fence order"]
    assert kinds(first, [granted("2", 30, 40, fence=5)]) == ["duplicate fence"]


def test_an_adopted_lease_begins_where_the_detached_one_ended() -> None:
    a = [granted("1", 0, 10, fence=1), look("1", 50, 960), *detached("1", 100)]
    assert kinds(a, [granted("2", 102, 110, fence=2, giver="1")]) == []
    assert kinds(a, [granted("2", 5, 99, fence=2, giver="1")]) == ["overlap"]
    assert kinds(a, [granted("2", 102, 110, fence=1, giver="1")]) == ["duplicate fence"]


def test_nobody_else_gets_a_lock_that_is_kept_for_an_adopter() -> None:
    a = [granted("1", 0, 10, fence=1), look("1", 50, 960), *detached("1", 100)]
    other = [granted("3", 150, 1_000_099, fence=3)]
    assert kinds(a, other) == ["broken hand-over"]
    assert kinds(a, [granted("3", 150, 1_000_101, fence=3)]) == []
    # It was adopted and released before, or a cancelled adopter has won and released it.
    adopter = [granted("2", 102, 110, fence=2, giver="1"), *released("2", 120)]
    assert kinds(a, adopter, other) == []
    assert kinds(a, [{"event": "cancel", "ask": 1, "at": 103, "giver": "1"}], other) == []


def test_a_lease_that_could_not_be_detached_is_released() -> None:
    a = [granted("1", 0, 10, fence=1), *detached("1", 50, ok=False), *released("1", 100)]
    assert kinds(a, [granted("2", 5, 99, fence=2)]) == ["overlap"]
    assert kinds(a, [granted("2", 5, 102, fence=2)]) == []


def test_a_lease_is_adopted_once() -> None:
    a = [granted("1", 0, 10, fence=1), *detached("1", 100)]
    b = [granted("2", 102, 110, fence=2, giver="1"), *released("2", 120)]
    c = [granted("3", 103, 130, fence=3, giver="1"), *released("3", 140)]
    assert kinds(a, b, c) == ["adopted twice"]


def handed(token: str, at: int, to: str, ok: bool = True, left: int = 0) -> History:
    return [
        {"event": "hand", "token": token, "at": at, "to": to},
        {"event": "handed", "token": token, "at": at + 1, "ok": ok, "left": left},
    ]


def test_the_successor_is_the_one_that_the_leader_named() -> None:
    a = [granted("1", 0, 10, fence=1), *handed("1", 100, to="b")]
    next_lease = [granted("2", 102, 110, fence=2)]
    assert kinds(a, next_lease) == []
    assert kinds(a, [], next_lease) == ["successor"]
    # It was cut off, and gave the keys back.
    assert kinds(a, [], [granted("2", 102, 100 + TTL + 1, fence=2)]) == []
    # It was killed, perhaps after it was elected.
    assert kinds(a, [{"event": "killed", "at": 105}], next_lease) == []
    assert kinds(a, [granted("2", 5, 99, fence=2)]) == ["overlap"]


def test_a_leader_without_a_successor_releases_its_lease() -> None:
    lease = granted("1", 0, 10, fence=1)
    c = [granted("2", 5, 150, fence=2)]
    assert kinds([lease, *handed("1", 100, to="b", ok=False)], [], c) == []
    valid = [lease, *handed("1", 100, to="b", ok=False, left=900)]
    assert kinds(valid, [], c) == ["broken promise"]
    assert kinds([*valid, *released("1", 200)], [], c) == ["overlap"]


def test_a_leader_that_is_killed_while_it_hands_over_may_have_ended_its_lease() -> None:
    hand = handed("1", 100, to="b")[0]
    a = [granted("1", 0, 10, fence=1), hand, {"event": "killed", "at": 120}]
    assert kinds(a, [granted("2", 5, 110, fence=2)]) == []
    assert kinds(a, [granted("2", 5, 99, fence=2)]) == ["broken promise"]


def observed(fence: int, at: int, holder: str = "a", process: int = 1) -> Entry:
    entry = {"event": "observed", "at": at, "process": process, "resource": "r"}
    return entry | {"holder": holder, "fence": fence}


def test_an_observer_is_told_of_growing_fences() -> None:
    assert kinds([observed(1, 10), observed(3, 20)]) == []
    assert kinds([observed(3, 10), observed(1, 20)]) == ["observed order"]
    assert kinds([observed(3, 10), observed(3, 20)]) == ["observed order"]
    assert kinds([observed(3, 10), observed(1, 20, process=2)]) == []


def test_an_observer_is_told_of_the_leader_with_that_fence() -> None:
    a = [granted("1", 0, 10, fence=1)]
    assert kinds(a, [observed(1, 20)]) == []
    assert kinds(a, [observed(1, 20, holder="b")]) == ["observed leader"]


def test_a_long_lease_is_compared_with_all_later_ones() -> None:
    a = [granted("1", 0, 10, fence=1), look("1", 900, 100)]
    b = [granted("2", 5, 100, fence=2), *released("2", 110)]
    c = [granted("3", 5, 200, fence=3), *released("3", 210)]
    assert kinds(a, b, c) == ["overlap", "overlap"]


def test_a_lease_that_had_ended_when_acquire_returned_overlaps_nothing() -> None:
    a = [granted("1", 0, 5000, fence=1, left=0)]
    b = [granted("2", 5, 2000, fence=2), look("2", 6000, 0)]
    assert kinds(a, b) == []


def test_leases_of_different_resources_do_not_overlap() -> None:
    a = [granted("1", 0, 10, fence=7), look("1", 200, 810)]
    b = [granted("2", 5, 100, fences={"other": 7})]
    assert kinds(a, b) == []


def test_a_lease_of_several_excludes_others_from_each_of_them() -> None:
    both = [granted("1", 0, 10, fences={"q": 1, "r": 5}), look("1", 200, 810)]
    assert kinds(both, [granted("2", 5, 199, fence=6)]) == ["overlap"]
    assert kinds([granted("2", 5, 9, fence=4), look("2", 11, 900)], both) == ["overlap"]
    # Two leases that overlap in two resources are one violation.
    other = [granted("2", 5, 199, fences={"r": 6, "q": 2})]
    assert kinds(both, other) == ["overlap"]
    assert kinds([*both, *released("1", 205)], [granted("2", 5, 207, fence=6)]) == []


def test_each_fence_of_a_lease_of_several_is_compared() -> None:
    both = [granted("1", 0, 10, fences={"q": 1, "r": 5}), *released("1", 20)]
    assert kinds(both, [granted("2", 25, 30, fence=5)]) == ["duplicate fence"]
    assert set(kinds(both, [granted("2", 25, 30, fence=4)])) == {"fence order"}
    assert kinds(both, [granted("2", 25, 30, fences={"r": 6, "q": 2})]) == []


@pytest.mark.parametrize("resources", [["r", "q"], []])
def test_a_lease_of_other_resources_than_requested_is_found(resources: list[str]) -> None:
    assert kinds([{**granted("1", 0, 10), "resources": resources}]) == ["other resources"]


def test_a_duplicate_fence_is_found() -> None:
    a = [granted("1", 0, 10, fence=7), *released("1", 20)]
    b = [granted("2", 5, 100, fence=7)]
    assert kinds(a, b) == ["duplicate fence"]


def test_a_smaller_fence_of_a_later_acquire_is_found() -> None:
    a = [granted("1", 0, 10, fence=7, left=0)]
    b = [granted("2", 11, 100, fence=6, left=0)]
    assert kinds(a, b) == ["fence order"]
    # The acquires overlap and neither lease was seen valid, so their order is not known.
    b = [granted("2", 9, 100, fence=6, left=0)]
    assert kinds(a, b) == []


def test_a_smaller_fence_of_a_lease_that_was_valid_later_is_found() -> None:
    a = [granted("1", 0, 10, fence=7), *released("1", 20)]
    b = [granted("2", 5, 100, fence=6)]
    assert kinds(a, b) == ["fence order"]


def test_a_lease_that_claims_to_be_valid_for_too_long_is_found() -> None:
    a = [granted("1", 0, 10, fence=1), look("1", 200, TTL)]
    assert kinds(a) == ["valid too long"]
    assert kinds([{**a[0], "extended": True}, a[1]]) == []
    # Without a heartbeat, a lease is renewed for its heartbeat timeout.
    silent, until = {**a[0], "extended": 3}, 10 + 3_000_000
    assert kinds([silent, look("1", until, TTL)]) == []
    assert kinds([silent, look("1", until, TTL + 1)]) == ["valid too long"]


@pytest.mark.parametrize("values", [[1, 1], [1, 3], [2], [1, 2, 2]])
def test_a_lost_update_is_found(values: list[int]) -> None:
    assert kinds(written=[write(value) for value in values]) == ["lost update"]


def test_a_refusal_while_the_lease_is_valid_is_found() -> None:
    a = [granted("1", 0, 10, fence=1), look("1", 200, 5, "refused")]
    assert kinds(a) == ["refused while valid"]
    a = [granted("1", 0, 10, fence=1), look("1", 2000, 0, "refused")]
    assert kinds(a) == []


def test_a_daemon_releases_the_leases_of_a_client_that_is_killed() -> None:
    a = [granted("1", 0, 10, fence=1, owner="daemon"), {"event": "killing", "at": 100}]
    assert kinds(a, [granted("2", 5, 101, fence=2)]) == []
    assert kinds(a, [granted("2", 5, 99, fence=2)]) == ["broken promise"]
    # Also one that it gets at the last moment.
    a = [{"event": "killing", "at": 5}, granted("1", 0, 10, fence=1, owner="daemon")]
    a.append({"event": "killed", "at": 50})
    assert kinds(a, [granted("2", 5, 101, fence=2)]) == []
    # The next process of this client keeps its own.
    a.append(granted("3", 105, 110, fence=2, owner="daemon"))
    assert kinds(a, [granted("2", 5, 200, fence=3)]) == ["broken promise"]
    # Without a daemon, the nodes keep them.
    own = [granted("1", 0, 10, fence=1), {"event": "killing", "at": 100}]
    assert kinds(own, [granted("2", 5, 101, fence=2)]) == ["broken promise"]


def test_a_daemon_that_drained_has_released_its_leases() -> None:
    a = [granted("1", 0, 10, fence=1, owner="daemon"), {"event": "drained", "at": 100}]
    assert kinds(a, [granted("2", 5, 101, fence=2)]) == []
    assert kinds(a, [granted("2", 5, 99, fence=2)]) == ["broken promise"]


def test_the_nodes_keep_the_leases_of_a_daemon_that_is_killed() -> None:
    over = {"event": "disconnected", "token": "1", "at": 100}
    a = [granted("1", 0, 10, fence=1, owner="daemon"), over]
    assert kinds(a, [granted("2", 5, 10 + TTL, fence=2)]) == []
    assert kinds(a, [granted("2", 5, 500, fence=2)]) == ["broken promise"]
    # Unless it was about to detach the lease, for a shorter time.
    detach = {"event": "detach", "token": "1", "at": 90, "within": 0}
    assert kinds([a[0], detach, over], [granted("2", 5, 500, fence=2)]) == []


def test_a_lease_is_kept_until_a_daemon_may_have_adopted_it() -> None:
    a = [granted("1", 0, 10, fence=1, left=100), *detached("1", 100)]
    ask = {"event": "ask", "ask": 1, "giver": "1", "resources": ["r"], "wait": 0, "at": 300}
    taken = [granted("2", 200, 400, fence=2)]
    assert kinds(a, [ask], taken) == ["broken hand-over"]
    assert kinds(a, [ask | {"owner": "daemon"}], taken) == []
