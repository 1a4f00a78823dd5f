"""The checker finds late waits in handwritten histories, and reports no false ones."""

from __future__ import annotations

import pytest
from chaos.check import Entry
from chaos.waits import longest_local_queue, stuck, waits

SLACK = 50
MS = 1_000_000

History = list[Entry]


def ask(number: int, at: int, wait: int | None = 1, resources: tuple[str, ...] = ("r",)) -> Entry:
    return {"event": "ask", "ask": number, "at": at, "wait": wait, "resources": list(resources)}


def granted(number: int, at: int) -> Entry:
    return {"event": "granted", "ask": number, "at": at}


def failed(number: int, at: int, code: str = "TIMEOUT") -> Entry:
    return {"event": "error", "ask": number, "at": at, "code": code}


def cancelled(number: int, since: int, at: int) -> History:
    return [
        {"event": "cancel", "ask": number, "at": since},
        {"event": "cancelled", "ask": number, "at": at},
    ]


def action(event: str, at: int) -> Entry:
    """Returns the entry that records what the run did to the process, such as stopping it."""
    return {"event": event, "at": at}


def kinds(*entries: Entry) -> list[str]:
    return [violation.kind for violation in stuck(waits([("a", entries)]), SLACK)]


def test_waits_that_end_in_time_are_no_violation() -> None:
    assert kinds(ask(1, 0), granted(1, 10)) == []
    assert kinds(ask(1, 0), failed(1, MS + SLACK)) == []
    assert kinds(ask(1, 0, None), granted(1, 900 * MS)) == []
    assert kinds(ask(1, 0, None), *cancelled(1, 900 * MS, 900 * MS + SLACK)) == []


def test_a_wait_that_never_ends_is_found() -> None:
    assert kinds(ask(1, 0), ask(2, 5, None), granted(1, 10)) == ["stuck"]


def test_a_wait_that_ends_too_late_is_found() -> None:
    assert kinds(ask(1, 0), failed(1, MS + SLACK + 1)) == ["stuck"]
    assert kinds(ask(1, 0), granted(1, MS + SLACK + 1)) == ["stuck"]
    assert kinds(ask(1, 0, 0), failed(1, SLACK + 1, "NO_QUORUM")) == ["stuck"]


def test_a_wait_that_continues_after_its_cancellation_is_found() -> None:
    assert kinds(ask(1, 0, None), *cancelled(1, 100, 101 + SLACK)) == ["stuck"]
    cancel = cancelled(1, 100, 0)[0]
    assert kinds(ask(1, 0, None), cancel, granted(1, 101 + SLACK)) == ["stuck"]


def test_time_in_which_a_process_is_stopped_does_not_count() -> None:
    stop = [action("stopped", 100), action("continued", 1_000_000)]
    assert kinds(ask(1, 50), *stop, failed(1, 50 + MS + SLACK + 999_900)) == []
    assert kinds(ask(1, 50), *stop, failed(1, 51 + MS + SLACK + 999_900)) == ["stuck"]
    # If the wait began while the process was stopped, only the rest of the stop is deducted.
    since = 999_000
    assert kinds(stop[0], ask(1, since, 0), stop[1], failed(1, since + SLACK + 1_000)) == []
    assert kinds(stop[0], ask(1, since, 0), stop[1], failed(1, since + SLACK + 1_001)) == ["stuck"]
    # A stop before the wait is not deducted.
    assert kinds(*stop, ask(1, MS, 0), failed(1, MS + SLACK + 1)) == ["stuck"]


def test_a_kill_ends_the_waits_of_its_process_and_not_those_of_the_next() -> None:
    assert kinds(ask(1, 0, None), action("killed", 100)) == []
    assert kinds(ask(1, 0), action("killed", MS + SLACK + 1)) == ["stuck"]
    assert kinds(ask(1, 0, None), action("killed", 100), ask(1, 200, None)) == ["stuck"]


@pytest.mark.parametrize("code", ["NO_QUORUM", "TIMEOUT"])
def test_an_unlimited_wait_must_be_granted_at_the_end_of_the_run(code: str) -> None:
    ending = action("ending", 100)
    assert kinds(ask(1, 0, None), ending, failed(1, 110, code)) == ["not granted"]
    assert kinds(ask(1, 0), ending, failed(1, 110, code)) == []
    assert kinds(ask(1, 0, None), failed(1, 90, code), ending) == []
    assert kinds(ask(1, 0, None), ending, granted(1, 110)) == []
    assert kinds(ask(1, 0, None), ending, *cancelled(1, 105, 110)) == []


def test_the_longest_local_queue_is_counted() -> None:
    histories = [
        ("a", [ask(1, 0), ask(2, 1, resources=("q", "r")), granted(1, 2), granted(2, 3)]),
        ("b", [ask(1, 0), granted(1, 3), ask(2, 3), granted(2, 4)]),
    ]
    assert longest_local_queue(waits(histories)) == 2
    assert longest_local_queue(waits(histories[1:])) == 1
