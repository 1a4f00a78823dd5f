"""A short chaos run, and two runs that must fail. `make chaos` performs a long run."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from itertools import islice, permutations
from pathlib import Path

import pytest
from chaos.check import KINDS_OF_OVERLAP
from chaos.faults import DAEMON_FAULTS, LAYERS, NETWORK_FAULTS, storms
from chaos.network import why_not
from chaos.run import report, run

PROGRAM = Path(__file__).parent / "run.py"
SECONDS = float(os.environ.get("CHAOS_SECONDS", "15"))
"""The minimum duration of the storms."""
SEED = int(os.environ.get("CHAOS_SEED", random.randrange(1_000_000)))


def test_there_is_no_violation_under_all_kinds_of_faults(tmp_path: Path) -> None:
    print(f"CHAOS_SEED={SEED}, files in {tmp_path}")
    result = run(SECONDS, SEED, tmp_path)
    assert report(result)
    figures = json.loads((tmp_path / "summary.json").read_text())
    assert figures["violations"] == []
    for name in ("Python", "Node.js", "Rust"):
        assert figures["acquisitions"][name] > 0
        assert figures["two resources"][name] > 0
        assert figures["shared"][name] > 0, figures["shared"]
        assert figures["permits"][name] > 0, figures["permits"]
    for what in ("several", "all held"):
        assert figures["permits"][what] > 0, figures["permits"]
    for what in ("together", "downgraded", "upgraded"):
        assert figures["shared"][what] > 0, figures["shared"]
    for pair in permutations(("Python", "Node.js", "Rust"), 2):
        assert figures["hand-overs"][" to ".join(pair)] > 0, figures["hand-overs"]
    assert figures["elections"]["handed over"] > 0, figures["elections"]
    assert figures["elections"]["released"] > 0
    assert figures["elections"]["observed"] > 0
    kinds = LAYERS.keys() - NETWORK_FAULTS.keys() - DAEMON_FAULTS.keys()
    assert all(figures["faults"][kind] for kind in kinds), figures["faults"]
    for kind in ("unlimited", "cancelled", "ended by a kill"):
        assert figures["waits"][kind] > 0, figures["waits"]
    assert figures["clients hit while"]["waiting"] > 0
    assert figures["register"]["writes"] > 0
    assert len(result.calms) > 1  # in each calm period, all clients got a lock
    assert "held by Rust" in (tmp_path / "timeline.html").read_text()


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
    result = run(0, 1, tmp_path, broken)  # a single storm
    assert not report(result)
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
