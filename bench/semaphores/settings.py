"""The sizes of the benchmark."""

from __future__ import annotations

import os
from pathlib import Path

RESULTS = Path(__file__).with_name("results.json")

SHORT = os.environ.get("SIZES") == "short"
"""Whether the sizes are so small that a run takes half a minute. Its figures mean nothing."""

LIMITS = (10, 1000)
"""The limits whose cycles and rounds are measured."""
CYCLE_ROUNDS = 1 if SHORT else 16
"""How many turns each contender has in which it runs one cycle at a time."""
ROUNDS = 1 if SHORT else 6
"""How many turns each crowd has."""
SECONDS = 0.4 if SHORT else 3.0
"""The length of a turn of a crowd."""
SECONDS_ALONE = 0.1 if SHORT else 0.5
"""The length of a turn of a single task."""
WARM = 0.2 if SHORT else 2.0
"""The length of the first turn of a crowd, which is not counted."""
PATIENCE = 60.0
"""Seconds within which a process must answer, after the time it was given."""

USE = "use"
"""The beginning of the names of the contests that show how many permits are in use."""
