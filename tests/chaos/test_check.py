"""The checker finds each kind of violation in handwritten histories, and reports no false ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from chaos.check import Entry, check

TTL = 1000

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
    return [violation.kind for violation in check(named, written or [], TTL)]


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


@pytest.mark.parametrize("values", [[1, 1], [1, 3], [2], [1, 2, 2]])
def test_a_lost_update_is_found(values: list[int]) -> None:
    assert kinds(written=[write(value) for value in values]) == ["lost update"]


def test_a_refusal_while_the_lease_is_valid_is_found() -> None:
    a = [granted("1", 0, 10, fence=1), look("1", 200, 5, "refused")]
    assert kinds(a) == ["refused while valid"]
    a = [granted("1", 0, 10, fence=1), look("1", 2000, 0, "refused")]
    assert kinds(a) == []
