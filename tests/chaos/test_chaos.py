"""A short chaos run, and two runs that must fail. `make chaos` performs a long run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from itertools import islice, permutations
from pathlib import Path
from typing import Any

import pytest
from chaos.check import KINDS_OF_OVERLAP
from chaos.exercise import SEED, Happened, counted, exercise
from chaos.faults import DAEMON_FAULTS, LAYERS, NETWORK_FAULTS, storms
from chaos.network import why_not
from chaos.run import report, run

PROGRAM = Path(__file__).parent / "run.py"


def test_there_is_no_violation_under_all_kinds_of_faults(tmp_path: Path) -> None:
    runs = exercise(tmp_path, happened)
    # In each calm period, all clients got a lock.
    assert all(len(result.calms) > 1 for result in runs)
    assert "held by Rust" in (runs[0].folder / "timeline.html").read_text()


def happened(figures: dict[str, Any]) -> Happened:
    """Whether a run has exercised each kind of lock, wait and fault, in all languages."""
    languages = ("Python", "Node.js", "Rust")
    kinds = LAYERS.keys() - NETWORK_FAULTS.keys() - DAEMON_FAULTS.keys()
    wanted: dict[str, Iterable[str]] = {
        "acquisitions": languages,
        "two resources": languages,
        "shared": (*languages, "together", "downgraded", "upgraded"),
        "permits": (*languages, "several", "all held"),
        "hand-overs": [" to ".join(pair) for pair in permutations(languages, 2)],
        "elections": ("handed over", "released", "observed"),
        "faults": kinds,
        "waits": ("unlimited", "cancelled", "ended by a kill"),
        "clients hit while": ("waiting",),
        "register": ("writes",),
    }
    return counted(figures, wanted)


def test_there_is_no_violation_when_packets_are_lost(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(f"no network namespaces: {reason}")
    options = ["--seconds=0", f"--seed={SEED}", f"--out={tmp_path}", "--namespaces=on"]
    done = subprocess.run([sys.executable, str(PROGRAM), *options], check=False)
    figures = json.loads((tmp_path / "summary.json").read_text())
    assert figures["violations"] == []
    assert done.returncode == 0
    assert all(figures["faults"][kind] for kind in NETWORK_FAULTS), figures["faults"]


@pytest.mark.parametrize("broken", ["split", "no-guard"])
def test_the_checker_finds_overlaps_under_a_broken_assumption(
    tmp_path: Path, broken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # Single storms: whether one makes leases overlap depends on which of them it hits.
    results = (run(0, seed, tmp_path / str(seed), broken) for seed in range(1, 5))
    result = next(result for result in results if not report(result))
    # Which of the kinds it is depends on how soon the old holder notices the loss.
    kinds = {violation.kind for violation in result.violations}
    assert kinds & KINDS_OF_OVERLAP.keys()
    if broken == "split":
        assert "too many permits" in kinds
    assert "lost update" not in kinds  # the fences still protect the register
    assert "crash" not in kinds
    assert " granted: " in capsys.readouterr().out


def test_the_same_seed_plans_the_same_faults() -> None:
    assert list(islice(storms(7, 5, 6, True), 20)) == list(islice(storms(7, 5, 6, True), 20))
    assert next(storms(7, 5, 6, True)) != next(storms(8, 5, 6, True))
