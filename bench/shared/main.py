"""`make bench-shared`; see README.md in this directory."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import sections
from peers.ecosystems import JAVA
from shared import cycles, phases
from shared.settings import RESULTS, SHORT

if __name__ == "__main__":
    sections.run(
        {"java": JAVA},
        {"alone": cycles.alone, "together": cycles.together, "phases": phases.measure},
        None if SHORT else RESULTS,
    )
