"""How bench/waiting evaluates the times of turns and the counts of commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bench.waiting.goals import goals
from bench.waiting.turns import (
    FROM_SCRIPTS,
    Turn,
    calls,
    fairness,
    hand_offs,
    overlaps,
    sent,
    summary,
)

ROOT = Path(__file__).resolve().parents[2]


def turn(client: int, called: int, acquired: int, releasing: int, released: int) -> Turn:
    """Returns a turn whose times are given in microseconds."""
    return Turn(client, *(1000 * micros for micros in (called, acquired, releasing, released)))


def test_a_hand_off_is_from_a_release_to_the_next_acquire_of_any_client() -> None:
    # The turns are grouped by client, so they are not in the order of their times.
    turns = [
        turn(0, 0, 10, 20, 30),
        turn(0, 30, 100, 110, 120),
        turn(1, 5, 50, 60, 70),
        turn(1, 70, 190, 200, 210),
    ]
    found = hand_offs(turns, until=10**9)
    assert [(each.micros, each.same) for each in found] == [(20, False), (30, False), (70, False)]


def test_a_hand_off_to_the_same_client_is_marked() -> None:
    turns = [turn(0, 0, 10, 20, 30), turn(0, 31, 40, 50, 60), turn(1, 0, 75, 80, 90)]
    found = hand_offs(turns, until=10**9)
    assert [(each.micros, each.same) for each in found] == [(10, True), (15, False)]


def test_a_hand_off_before_the_release_returns_is_negative() -> None:
    turns = [turn(0, 0, 10, 20, 40), turn(1, 0, 25, 50, 60)]
    assert [each.micros for each in hand_offs(turns, until=10**9)] == [-15]
    assert overlaps(turns) == 0


def test_hand_offs_after_the_time_is_up_do_not_count() -> None:
    turns = [turn(0, 0, 10, 20, 30), turn(1, 0, 40, 50, 60), turn(2, 0, 90, 100, 110)]
    assert [each.micros for each in hand_offs(turns, until=40_000)] == [10]


def test_turns_that_hold_the_lock_at_the_same_time_are_counted() -> None:
    # The other two clients hold the lock while the first one holds it.
    turns = [turn(0, 0, 10, 100, 110), turn(1, 0, 20, 30, 40), turn(2, 0, 50, 60, 70)]
    assert overlaps(turns) == 2
    assert overlaps([turn(0, 0, 10, 20, 30), turn(1, 0, 20, 30, 40)]) == 0


@pytest.mark.parametrize("values", [[], [1.0]])
def test_too_few_values_have_no_summary(values: list[float]) -> None:
    assert summary(values) is None


def test_fairness_counts_turns_before_the_end_and_all_waits() -> None:
    turns = [
        turn(0, 0, 1_000, 2_000, 3_000),
        turn(0, 3_000, 4_000, 5_000, 6_000),
        turn(1, 0, 4_000, 5_000, 6_000),
        turn(1, 6_000, 10_000, 11_000, 12_000),  # too late to count as a turn, but its wait counts
    ]
    found = fairness(turns, 2, until=9_000_000)
    assert (found.luckiest, found.unluckiest, found.turns_ratio) == (2, 1, 2)
    assert found.longest == pytest.approx(0.004)
    assert found.average == pytest.approx(0.0025)
    assert found.wait_ratio == pytest.approx(1.6)


def test_a_client_without_a_turn_counts() -> None:
    found = fairness([turn(0, 0, 1, 2, 3)], 2, until=10**9, unfinished=[(0, 2 * 10**9)])
    assert found.unluckiest == 0
    assert found.turns_ratio == float("inf")
    assert found.longest == 2.0


def results() -> dict[str, Any]:
    """Returns results that meet all goals."""
    handed = {"times uncontended": 3.0, "overlaps": 0}
    return {
        "hand-offs": {
            "wait": {"2": {"quorlock": handed, "redlock": {}}},
            "come back": {"2": {"quorlock": handed | {}, "redlock": {"overlaps": 1}}},
            "commands": {"quorlock": {"2": 5.0, "8": 7.0}, "redlock": {"2": 100.0}},
        },
        "fairness": {"quorlock": {"turns ratio": 1.5, "wait ratio": 3.0}},
        "crowd": {
            "Node.js": {"one per second": 1.0, "many per second": 2.0, "many per acquisition": 8.0}
        },
        "death": {"most": 100.0},
        "left behind": [],
    }


def missed(found: dict[str, Any]) -> list[str]:
    return [goal.what for goal in goals(found) if not goal.met]


def test_goals_apply_to_quorlock_only() -> None:
    assert missed(results()) == []


def test_each_goal_can_be_missed() -> None:
    found = results()
    found["hand-offs"]["wait"]["2"]["quorlock"]["times uncontended"] = None  # too few
    found["hand-offs"]["come back"]["2"]["quorlock"] = {"times uncontended": 3.1, "overlaps": 1}
    found["hand-offs"]["commands"]["quorlock"] = {"2": 4.0, "8": 8.1}
    found["fairness"]["quorlock"] = {"turns ratio": 1.6, "wait ratio": 3.1}
    found["crowd"]["Node.js"] |= {"many per second": 2.1, "many per acquisition": 8.1}
    found["death"]["most"] = 101.0
    found["left behind"] = ["key"]
    assert len(missed(found)) == len(list(goals(found)))


INFO = """# Commandstats\r
cmdstat_evalsha:calls=7,usec=70,usec_per_call=10.00,rejected_calls=0,failed_calls=1\r
cmdstat_set:calls=5,usec=9,usec_per_call=1.80,rejected_calls=0,failed_calls=0\r
cmdstat_client|setinfo:calls=2,usec=4,usec_per_call=2.00,rejected_calls=0,failed_calls=0\r
cmdstat_client|id:calls=1,usec=4,usec_per_call=2.00,rejected_calls=0,failed_calls=0\r
cmdstat_info:calls=3,usec=4,usec_per_call=2.00,rejected_calls=0,failed_calls=0\r
"""


def test_calls_are_parsed_from_info() -> None:
    assert calls(INFO) == {"evalsha": 7, "set": 5, "client": 3, "info": 3}


def test_commands_run_by_scripts_and_the_first_info_are_not_counted_as_sent() -> None:
    before, after = calls(INFO), calls(INFO) | {"evalsha": 17, "set": 11, "info": 4, "ping": 2}
    assert sent(before, after) == 12  # without the SETs of scripts and the first INFO
    assert sent(before, after, {"set"}) == 18


def test_all_commands_of_quorlock_scripts_are_known() -> None:
    sources = (path.read_text() for path in (ROOT / "core" / "src").rglob("*.lua"))
    commands = {
        name.lower() for text in sources for name in re.findall(r"redis\.p?call\('(\w+)'", text)
    }
    assert {"get", "set", "del"} <= commands
    assert commands <= FROM_SCRIPTS
