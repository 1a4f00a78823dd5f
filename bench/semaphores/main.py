"""`make bench-semaphores`; see README.md in this directory."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import sections
from peers.ecosystems import JAVA, NODE
from semaphores import contention, cycles
from semaphores.goals import goals
from semaphores.settings import RESULTS, SHORT

if __name__ == "__main__":
    sections.run(
        {"java": JAVA, "node": NODE},
        {"cycles": cycles.measure, "contests": contention.measure},
        None if SHORT else RESULTS,
        goals,
    )
