"""What bench/shared counts."""

from __future__ import annotations

from bench.shared.overtaking import figures

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
