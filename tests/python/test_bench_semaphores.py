"""What bench/semaphores counts, and how it writes its section of docs/performance.md."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

from semaphores.page import section
from semaphores.timeline import Timeline, Turn

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
    assert (found["acquisitions"], found["timeouts"]) == (1, 1)


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


def cycles(nodes: int, *medians: float) -> dict[str, Any]:
    kinds = zip(("lock", "10", "1000"), medians, strict=True)
    summaries = {kind: {"median": each, "server cpu per node": each / 10} for kind, each in kinds}
    return {"library": "quorlock Rust", "nodes": nodes} | summaries


def test_the_section_shows_ratios_rounds_and_overruns() -> None:
    held = timeline(1, [turn(0, 1, 10, 11)], [turn(0, 12, 20, 21)]) | {"alone": 500.0}
    counted = held | {"median rounds": 1, "mean rounds": 1.25, "limit": 10, "busy CPUs": 0.847}
    text = section(
        {
            "date": "2026-11-23",
            "machine": {"commit": "abc", "CPUs": 2, "processor": "X", "server": "redis-server 7"},
            "placement": "servers on CPU [0], clients on CPU [1]",
            "cycles": [cycles(5, 200.0, 240.0, 300.0)],
            "contests": {
                "rounds at half load, limit 10": {"quorlock Rust, N = 5": counted},
                "hand-off": {"quorlock Rust, N = 5": held, "redisson": {"failure": "hangs"}},
                "use on five nodes": {
                    "quorlock Rust, N = 5, 10 processes": counted | {"contenders": 10},
                    "quorlock Rust, N = 5, 20 processes": counted
                    | {"contenders": 20, "average held": 8.0, "per second": 700.0},
                    "redisson, N = 1": held,
                    "redis-semaphore, N = 5": {"failure": "ends: x"},
                },
                "limit": {"redis-semaphore, N = 3": held},
            },
        }
    )
    assert "| one cycle at limit 10, quorlock Rust | at most 1.3" in text
    assert "of an exclusive lock | 1.20 | yes |" in text
    assert "| median rounds at half load, limit 10 | at most 1.2 | 1.00 | yes |" in text
    assert "| acquisitions above the limit, quorlock, all contests | none | 0 | yes |" in text
    assert "| **quorlock Rust** | 5 | 200 µs | 240 µs (1.20) | 300 µs (1.50) |" in text
    assert "| **quorlock Rust** | 5 | 20 µs | 24 µs (1.20) | 30 µs (1.50) |" in text
    assert "| half load | 10 | 1 | 1.25 |" in text
    assert "| 20 contenders | 10 | 1 | 1.25 |" in text
    assert "| **quorlock Rust**, N = 5 | 500 µs | 1,000 µs | 2.00 times | 2,000 µs |" in text
    assert "| Redisson | hangs | | | |" in text
    assert "| **quorlock Rust**, N = 5, 20 processes | 8.00 | 700 | 0 | 0.85 | 1,210 µs |" in text
    assert "To keep 9.5 of the ten permits in use, five nodes need about 1.0 CPUs." in text
    assert "| permits in use of 10, quorlock Rust, N = 5, 20 processes | at least 9.5 |" in text
    assert "| permits in use of 10, quorlock Rust, N = 5, 10 processes |" not in text
    assert "| redis-semaphore, N = 5 | ends | | |" in text
    assert "| redis-semaphore, N = 3 | 2 | 0 | 1 |" in text
