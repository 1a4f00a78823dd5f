"""What bench/semaphores counts."""

from __future__ import annotations

from typing import Any

from bench.semaphores.goals import goals
from bench.semaphores.timeline import Timeline, Turn

MILLISECOND = 1_000_000


def turn(began: float, granted: float, ended: float, released: float) -> Turn:
    return Turn(*(int(time * MILLISECOND) for time in (began, granted, ended, released)))


def timeline(limit: int, *processes: list[Turn]) -> dict[str, Any]:
    found = Timeline(limit)
    found.add(processes)
    return found.summary()


def test_acquisitions_above_the_limit_are_counted() -> None:
    found = timeline(
        2, [turn(0, 1, 10, 11)], [turn(0, 2, 10, 11)], [turn(0, 3, 4, 5), turn(6, 7, 8, 9)]
    )
    assert (found["acquisitions"], found["overruns"], found["most held"]) == (4, 2, 3)


def test_permits_that_change_hands_at_once_do_not_overlap() -> None:
    found = timeline(1, [turn(0, 1, 10, 11)], [turn(0, 10, 20, 21)])
    assert (found["overruns"], found["most held"]) == (0, 1)


def test_an_acquire_that_timed_out_is_no_acquisition() -> None:
    found = timeline(1, [turn(0, 1, 10, 11)], [Turn(0, None, None, None)])
    assert found["acquisitions"] == 1


def test_use_is_the_average_while_all_take_part() -> None:
    # All take part from 5 to 15 ms. Two permits are held for 5 ms, then one for 2 ms, two for 1 ms,
    # and three for 2 ms.
    found = timeline(
        3,
        [turn(0, 1, 10, 11), turn(12, 13, 15, 16)],
        [turn(0, 5, 30, 31)],
        [turn(0, 2, 5, 5), turn(5, 12, 15, 16)],
    )
    assert found["average held"] == (5 * 2 + 2 * 1 + 1 * 2 + 2 * 3) / 10


def test_use_does_not_count_permits_above_the_limit() -> None:
    found = timeline(
        1, [turn(0, 1, 10, 11)], [turn(0, 1, 10, 11)], [turn(0, 1, 2, 2), turn(2, 9, 10, 11)]
    )
    assert found["average held"] == 1.0


def test_a_hand_off_pairs_a_release_with_the_next_grant() -> None:
    # The first hand-off takes 2 ms from the call of the release, and 1 ms from its return. The
    # third contender comes when a permit is free, which is none.
    found = timeline(1, [turn(0, 1, 10, 11)], [turn(0, 12, 20, 21)], [turn(30, 31, 40, 41)])
    assert (found["vacant"], found["hand-off"]) == (2000.0, 1000.0)


def test_an_acquisition_above_the_limit_misses_the_goal() -> None:
    found = timeline(1, [turn(0, 1, 10, 11)], [turn(0, 2, 9, 11)])
    verdicts = goals(
        {"cycles": [], "contests": {"hand-off": {}, "limit": {"quorlock Rust": found}}}
    )
    assert [(each.measured, each.met) for each in verdicts] == [("1", False)]
