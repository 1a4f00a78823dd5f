"""The sizes of measurements, and where files are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PROGRAMS = ROOT / "target" / "release"
"""The directory of the programs built from `bench/rust`."""

TOPICS = ("performance", "scale", "waiting", "elections", "shared", "semaphores", "serve")

SHORT = os.environ.get("SIZES") == "short"
"""Whether the sizes are so small that a topic takes about a minute."""
VARIABLES = ("ROUNDS", "CYCLES")
"""The environment variables that change a size."""
FULL = not SHORT and not any(variable in os.environ for variable in VARIABLES)
"""Whether all sizes are the default ones. Only such figures are saved."""


def pick(full: T, short: T) -> T:
    """Returns the size for this run."""
    return short if SHORT else full


def number(variable: str, full: int, short: int) -> int:
    """Returns a size that an environment variable of `VARIABLES` can change."""
    assert variable in VARIABLES
    return int(os.environ.get(variable, pick(full, short)))


def results_file(topic: str) -> Path:
    return HERE / ("" if topic == "performance" else topic) / "results.json"


ROUNDS = number("ROUNDS", 8, 1)
"""The turns of each contender in the topic `performance`."""
CYCLES = number("CYCLES", 200, 20)
"""The cycles of one turn, one at a time. Slow contenders run fewer; see TURN."""
TURN = 0.0015 * CYCLES
"""The target duration of a turn in seconds, for which slow contenders run fewer cycles."""
WARM = min(0.3, 0.05 * ROUNDS)
"""The warm-up time of each contender in seconds."""

LIMIT = 10.0
"""Seconds after which a contender that has not answered counts as hanging, and is killed."""
PATIENCE = 60.0
"""Seconds within which another program must answer, after the time that it was given."""

NODES = 5
"""The default number of nodes."""
