"""How bench/scale writes its section of docs/performance.md."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

from figures import NODE, RUST
from scale.page import section, spread


def held(name: str, leases: int, cpu: float) -> dict[str, Any]:
    return {
        "name": name,
        "leases": leases,
        "seconds to acquire": leases / 5000,
        "client bytes": 1000.0,
        "server bytes": 400.0,
        "client cpu": cpu,
        "server cpu": 2.0,
    }


def processes(count: int, hand_over: float) -> dict[str, float]:
    return {
        "processes": count,
        "connections": count,
        "connections, waiting": 2 * count,
        "client bytes": 900_000.0,
        "server bytes": 23_000.0,
        "idle client cpu": 100.0,
        "idle server cpu": 8.0,
        "hand-over ms": hand_over,
        "median hand-over ms": hand_over,
        "longest hand-over ms": hand_over,
        "scripts": 2.0,
        "server cpu": 120.0,
        "waiting server cpu": 0.2,
    }


def sample(number: int) -> dict[str, float]:
    return {
        "resources": 20_000 * number,
        "elapsed": 1.0 * number,
        "rate": 20_000.0,
        "server cpu": 50.0 + number,
        "client bytes": 6_000_000.0 + 100_000 * number,
        "server bytes": 3_000_000.0 * number,
        "keys": 20_000 * number,
    }


def cycle(median: float, servers: float) -> dict[str, float]:
    return {"median": median, "client cpu": 50.0, "server cpu per node": servers}


def page() -> str:
    return section(
        {
            "date": "2026-01-01",
            "machine": {"commit": "abc", "CPUs": 2, "processor": "any", "server": "redis 7"},
            "placement": "servers on CPU [0]",
            "held": [held(RUST, 1000, 2.0), held(RUST, 100_000, 3.0), held(NODE, 1000, 50.0)],
            "distinct": [sample(number) for number in range(1, 101)],
            "processes": [processes(1, 1.0), processes(1000, 2.5)],
            "resources": {"1": cycle(100.0, 20.0), "64": cycle(1600.0, 160.0)},
            "nodes": {"1": cycle(50.0, 30.0), "9": cycle(500.0, 60.0)},
        }
    )


def test_the_cost_of_a_lease_is_compared_within_rust() -> None:
    assert "leases, the client's CPU time per lease varies by a factor of 1.50" in page()


def test_the_growth_of_the_client_is_that_of_the_second_half() -> None:
    assert "the memory of the client grew by 4.9 MB" in page()


def test_the_cost_of_deleting_expired_keys_is_shown() -> None:
    # The means of samples 1 to 50 and 91 to 100.
    assert "76 µs of CPU time per cycle in the first half of the measurement, and 146 µs" in page()


def test_every_tenth_sample_is_a_row() -> None:
    assert "| 200,000 | 10 s | 20,000 | 7.0 MB | 30.0 MB | 200,000 |" in page()
    assert "| 2,000,000 | 100 s | 20,000 | 16.0 MB | 300.0 MB | 2,000,000 |" in page()
    assert "| 20,000 | 1 s |" not in page()


def test_processes_are_compared_by_their_average_hand_over() -> None:
    assert "1,000 processes, the average hand-over time varies by a factor of 2.50" in page()


def test_resources_and_nodes_have_a_cost_per_unit() -> None:
    assert "| 64 | 1,600 µs | 25 µs | 50 µs | 160 µs | 2.5 µs |" in page()
    assert "A cycle with 64 resources takes 16.0 times as long as a cycle with 1 resource" in page()
    assert "the CPU time of one server per cycle varies by a factor of 2.00" in page()


@pytest.mark.parametrize(
    ("values", "words"), [([2.0, 3.0], "a factor of 1.50"), ([0.0, 1.0], "an unknown factor")]
)
def test_a_spread_needs_costs_above_zero(values: list[float], words: str) -> None:
    assert spread(values) == words
