"""The checks fail if they have checked nothing, or not enough."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from proof.report import Report, report

ROOT = Path(__file__).resolve().parents[2]


def job(questions: int, undecided: int = 0, wrong: list[str] | None = None) -> Report:
    return Report("a job", questions, 0.1, wrong or [], undecided)


def test_proof_fails_if_a_claim_is_not_proved() -> None:
    assert report([job(10), job(10)]) == 0
    assert report([job(10), job(10, wrong=["a claim"])]) == 1
    assert report([job(10)], ["a step occurs in no run"]) == 1


def test_proof_fails_if_nothing_was_asked() -> None:
    assert report([]) == 1
    assert report([job(0)]) == 1


def test_second_solver_fails_if_more_than_one_percent_is_undecided(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert report([job(100, undecided=1), job(100, undecided=1)]) == 0
    assert report([job(100, undecided=1), job(100, undecided=2)]) == 1
    assert "3 of 200 questions are undecided, more than 1 %" in capsys.readouterr().out


WORLD = """echo '[0, "world", "a run", [[0, 1.0, 0]]]'"""
"""Writes a run in which nothing happens: one node, with its clock, rate and error."""


def tie(program: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Runs the tie with a shell script in place of the simulation. It writes steps to `$STEPS`."""
    script = tmp_path / "simulation"
    script.write_text(f"#!/bin/sh\n{program}\n")
    script.chmod(0o755)
    command = [sys.executable, "-m", "proof.tie", "--seeds", "1", "--program", str(script)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("exit 0", "steps of 0 runs"),
        (': > "$STEPS/1"', "steps of 0 runs"),
        (f"{WORLD} > $STEPS/1; {WORLD} > $STEPS/2", "steps of 2 runs, not 1"),
        (f"{WORLD} > $STEPS/1; exit 2", "status 2"),
        (f"{WORLD} > $STEPS/1", "2 runs refused"),
    ],
    ids=["no runs", "empty runs", "too many runs", "a crash", "runs without a step"],
)
def test_tie_fails_without_the_runs_that_it_asked_for(
    program: str, message: str, tmp_path: Path
) -> None:
    done = tie(program, tmp_path)
    assert done.returncode != 0
    assert message in done.stdout + done.stderr
