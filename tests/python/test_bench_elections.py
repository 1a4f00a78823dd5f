"""How bench/elections writes its section of docs/performance.md."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

from elections.page import section

RESULTS = {
    "date": "2026-11-23",
    "machine": {"commit": "abc", "CPUs": 2, "processor": "X", "server": "redis-server 7"},
    "placement": "servers on CPU [0], clients on CPU [1]",
    "ttl": 3.0,
    "hand-over": [0.5, 0.4, 9.0],
    "release": [0.7],
    "crash": [2100.0, 2900.0],
    "observer": [0.25, 1.5],
}


def test_the_section_shows_medians_and_the_longest_times() -> None:
    text = section(RESULTS)
    assert "| hand-over to a successor | 3 | 0.50 ms | 9.00 ms |" in text
    assert "| crash, ttl 3 s | 2 | 2.50 s | 2.90 s |" in text
    assert "ends after 2 to 3 s" in text
    assert "at most 1.50 ms after the election (median: 0.88 ms)" in text
