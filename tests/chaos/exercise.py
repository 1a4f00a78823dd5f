"""Repeats a short chaos run until it has exercised everything that it must exercise.

Faults and clients meet by chance, so one run of 15 s may leave something out. No run may have a
violation.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from chaos.history import Run
from chaos.run import report, run

SECONDS = float(os.environ.get("CHAOS_SECONDS", "15"))
"""The minimum duration of the storms of a run."""
SEED = int(os.environ.get("CHAOS_SEED", random.randrange(1_000_000)))
RUNS = 5
"""The maximum number of runs."""

Happened = dict[str, bool]
"""Whether each thing happened in a run."""


def counted(figures: dict[str, Any], wanted: dict[str, Iterable[str]]) -> Happened:
    """Whether each of these figures, in its group, was counted at all."""
    return {
        f"{group}: {name}": figures[group].get(name, 0) > 0
        for group, names in wanted.items()
        for name in names
    }


def exercise(
    folder: Path, happened: Callable[[dict[str, Any]], Happened], *, serve: bool = False
) -> list[Run]:
    """Runs until everything that `happened` finds in the figures has happened. Returns the runs."""
    runs = []
    missing: set[str] | None = None
    for number in range(RUNS):
        place = folder / f"run{number}"
        place.mkdir()
        print(f"CHAOS_SEED={SEED + number}, files in {place}")
        result = run(SECONDS, SEED + number, place, serve=serve)
        runs.append(result)
        assert report(result)
        figures = json.loads((place / "summary.json").read_text())
        assert figures["violations"] == []
        left_out = {what for what, did in happened(figures).items() if not did}
        missing = left_out if missing is None else missing & left_out
        if not missing:
            return runs
    raise AssertionError(f"in {RUNS} runs, none of these happened: {sorted(missing or ())}")
