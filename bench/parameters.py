"""How long and how often everything is measured."""

from __future__ import annotations

import os
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PROGRAMS = ROOT / "target" / "release"
"""Where cargo puts the programs of `bench/rust`."""
RESULTS = HERE / "results.json"

ROUNDS = int(os.environ.get("ROUNDS", "8"))
CYCLES = int(os.environ.get("CYCLES", "200"))
"""Cycles of a turn, one at a time, of those that are not slow."""
TURN = 0.0015 * CYCLES
"""Seconds after which a turn had better be over. Slow contenders do fewer cycles."""
WARM = min(0.3, 0.05 * ROUNDS)
"""Seconds for which each contender warms up."""
HOLD = float(os.environ.get("HOLD", min(30, 10 + 3 * ROUNDS)))
"""Seconds for which leases are held."""
STARTS = 2 * ROUNDS
"""How many processes of each kind are started to see how long they take."""

LIMIT = 10.0
"""Seconds until a contender that has not answered hangs, and is killed."""

NODES = 5
"""How many nodes, where it is not said otherwise."""
