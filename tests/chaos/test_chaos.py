"""A short chaos run, and two that must fail. `make chaos` is the long one."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from chaos.faults import NETWORK_FAULTS, SLOTS, storms
from chaos.network import why_not
from chaos.run import report, run

PROGRAM = Path(__file__).parent / "run.py"
SECONDS = float(os.environ.get("CHAOS_SECONDS", "15"))
"""How long it goes on, but for the time that it takes until all is well again."""
SEED = int(os.environ.get("CHAOS_SEED", random.randrange(1_000_000)))


def test_the_lock_withstands_everything(tmp_path: Path) -> None:
    print(f"CHAOS_SEED={SEED}, files in {tmp_path}")
    happened = run(SECONDS, SEED, tmp_path)
    assert report(happened)
    figures = json.loads((tmp_path / "summary.json").read_text())
    assert figures["violations"] == []
    for language in ("Python", "Node.js", "Rust"):
        assert figures["acquisitions"][language] > 0
        assert figures["of two"][language] > 0
    kinds = SLOTS.keys() - NETWORK_FAULTS.keys()
    assert all(figures["faults"][kind] for kind in kinds), figures["faults"]
    for kind in ("for ever", "cancelled", "cut short by a kill"):
        assert figures["waits"][kind] > 0, figures["waits"]
    assert figures["struck while"]["waiting"] > 0
    assert figures["register"]["writes"] > 0
    assert len(happened.calms) > 1  # in each of which everybody got a lock
    assert "held by Rust" in (tmp_path / "timeline.html").read_text()


def test_in_network_namespaces_where_there_can_be_some(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(f"no network namespaces: {reason}")
    options = ["--seconds=0", f"--seed={SEED}", f"--out={tmp_path}", "--namespaces=on"]
    done = subprocess.run([sys.executable, str(PROGRAM), *options], check=False)
    figures = json.loads((tmp_path / "summary.json").read_text())
    assert figures["violations"] == []
    assert done.returncode == 0
    assert all(figures["faults"][kind] for kind in NETWORK_FAULTS), figures["faults"]


@pytest.mark.parametrize("broken", ["split", "no-guard"])
def test_the_checker_finds_what_comes_of_a_broken_assumption(
    tmp_path: Path, broken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    happened = run(0, 1, tmp_path, broken)  # a single storm
    assert not report(happened)
    assert "overlap" in {violation.kind for violation in happened.violations}
    # Fences save the register all the same, which is what they are for.
    assert "lost update" not in {violation.kind for violation in happened.violations}
    assert " granted: " in capsys.readouterr().out


def test_the_seed_repeats_the_faults() -> None:
    assert list(islice(storms(7, 5, 6, True), 20)) == list(islice(storms(7, 5, 6, True), 20))
    assert next(storms(7, 5, 6, True)) != next(storms(8, 5, 6, True))
