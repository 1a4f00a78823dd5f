"""The sizes of the benchmark."""

from __future__ import annotations

import os
from pathlib import Path

RESULTS = Path(__file__).with_name("results.json")

SHORT = os.environ.get("SIZES") == "short"
"""Whether the sizes are so small that a run takes seconds. Its figures mean nothing."""

ROUNDS = 1 if SHORT else 16
READERS = 1000
"""The loops that read one resource at the same time."""
PROCESSES, TASKS = 4, 16
"""The processes of readers beside a writer, and the readers of each."""
HOLD = 0.02
"""The mean time for which such a reader holds its lease, in seconds."""
SECONDS = 2 if SHORT else 30
PATIENCE = 60.0
"""Seconds within which a process must answer, after the time it was given."""
