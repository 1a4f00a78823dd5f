"""`make bench-serve`; see README.md in this directory."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import sections
from peers.ecosystems import GO, JAVA
from serve import cycles, idle, kills
from serve.goals import goals
from serve.page import section
from serve.settings import RESULTS, SHORT

if __name__ == "__main__":
    sections.run(
        {"go": GO, "java": JAVA},
        {"cycles": cycles.measure, "idle": idle.measure, "kills": kills.measure},
        None if SHORT else RESULTS,
        goals,
        section,
    )
