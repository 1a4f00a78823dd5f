"""The list of what the tie makes of the mutants is complete."""

from __future__ import annotations

import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent


def test_each_mutant_is_listed_once() -> None:
    mutants = tomllib.loads((HERE / "mutants.toml").read_text())["mutant"]
    groups = tomllib.loads((HERE / "tie.toml").read_text())
    listed = [name for group in groups.values() for name in group["mutants"]]
    assert sorted(listed) == sorted(mutant["name"] for mutant in mutants)


def test_tie_refuses_nine_of_ten_mutants_that_break_safety() -> None:
    groups = tomllib.loads((HERE / "tie.toml").read_text())
    refused, accepted = (len(groups[name]["mutants"]) for name in ("refused", "accepted"))
    assert refused >= 0.9 * (refused + accepted)
