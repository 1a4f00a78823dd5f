"""The sizes of the benchmark."""

from __future__ import annotations

import os
from pathlib import Path

RESULTS = Path(__file__).with_name("results.json")

SHORT = os.environ.get("SIZES") == "short"
"""Whether the sizes are so small that a run takes seconds. Its figures mean nothing."""

CHANGES = 3 if SHORT else 100
"""How often a leader hands over, and how often one releases."""
CRASHES = 1 if SHORT else 20
TTL = 3.0
PATIENCE = 60.0
"""Seconds within which a process must answer."""
