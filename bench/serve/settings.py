"""The sizes of the benchmark."""

from __future__ import annotations

import os
from pathlib import Path

RESULTS = Path(__file__).with_name("results.json")

SHORT = os.environ.get("SIZES") == "short"
"""Whether the sizes are so small that a run takes half a minute. Its figures mean little."""

SERVE = "quorlock serve (Go)"
REDSYNC, FAIL_FAST, REDISSON = "redsync", "redsync-fail-fast", "redisson"
"""The names of contenders."""

ROUNDS = 2 if SHORT else 32
"""How many turns each contender has in which it runs one cycle at a time."""
ROUNDS_IN_FLIGHT = 1 if SHORT else 8
"""How many turns each contender has in which it runs many cycles at once."""
IN_FLIGHT = 64
IDLE = 10_000
"""How many idle connections the daemon has."""
KILLS = 5 if SHORT else 50
"""How many holders are killed."""
