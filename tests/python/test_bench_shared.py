"""How bench/shared writes its section of docs/performance.md, and what it counts."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

from shared.overtaking import figures
from shared.page import section

MILLISECOND = 1_000_000


def test_readers_that_overtake_the_writer_are_counted() -> None:
    # The second reader comes after the writer and gets the lock before it.
    times = [(0, 1, 30), (15, 18, 40), (16, 60, 70)]
    reads = [(a * MILLISECOND, b * MILLISECOND, c * MILLISECOND) for a, b, c in times]
    writes = [
        (10 * MILLISECOND, 50 * MILLISECOND, 51 * MILLISECOND),
        (80 * MILLISECOND, None, None),
    ]
    found = figures(writes, reads)
    assert (found["writes"], found["failed writes"]) == (2, 1)
    assert (found["longest wait ms"], found["most later readers"]) == (40, 1)
    assert found["longest wait of a reader ms"] == 44


def cycle(median: float, rate: float = 1.0) -> dict[str, float]:
    return {"median": median, "rate": rate, "scripts": 2.0, "server cpu per node": 12.0}


def test_the_section_shows_ratios_and_the_longest_waits() -> None:
    turn = figures([(0, 5 * MILLISECOND, 6 * MILLISECOND)], [(0, 1, 10 * MILLISECOND)])
    text = section(
        {
            "date": "2026-11-23",
            "machine": {"commit": "abc", "CPUs": 2, "processor": "X", "server": "redis-server 7"},
            "placement": "servers on CPU [0], clients on CPU [1]",
            "alone": {"5": {"exclusive": cycle(200.0), "shared": cycle(240.0)}},
            "together": {"exclusive": cycle(1.0, 10_000), "readers": cycle(1.0, 9_000)},
            "phases": {
                "quorlock, N = 5": turn,
                "redisson, N = 1": figures([(0, None, None)], [(0, 1, 10)]),
            },
        }
    )
    assert "| **quorlock Rust (async)** | 5 | 200 µs | 240 µs | 1.20 times |" in text
    assert "0.90 times the throughput" in text
    assert "| **quorlock, N = 5** | 1 of 1 | 5 ms | 5 ms | 0 | 100 |" in text
    assert "| Redisson, N = 1 | 0 of 1 | | | |" in text
