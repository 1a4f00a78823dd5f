"""The durations and counts of all measurements."""

from __future__ import annotations

import os
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PROGRAMS = ROOT / "target" / "release"
"""The directory of the programs built from `bench/rust`."""
RESULTS = HERE / "results.json"

ROUNDS = int(os.environ.get("ROUNDS", "8"))
CYCLES = int(os.environ.get("CYCLES", "200"))
"""The cycles of one turn, one at a time. Slow contenders run fewer; see TURN."""
TURN = 0.0015 * CYCLES
"""The target duration of a turn in seconds, for which slow contenders run fewer cycles."""
WARM = min(0.3, 0.05 * ROUNDS)
"""The warm-up time of each contender in seconds."""
HOLD = float(os.environ.get("HOLD", min(30, 10 + 3 * ROUNDS)))
"""How long leases are held, in seconds."""
STARTS = 2 * ROUNDS
"""The number of processes of each kind whose start is measured."""

LIMIT = 10.0
"""Seconds after which a contender that has not answered counts as hanging, and is killed."""

NODES = 5
"""The default number of nodes."""
