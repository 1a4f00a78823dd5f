"""The lists of mutants fit the code, and one another. `make mutants` runs the mutants."""

from __future__ import annotations

import tomllib
from pathlib import Path

from mutants.run import mismatches

HERE = Path(__file__).resolve().parent


MUTANTS = tomllib.loads((HERE / "mutants.toml").read_text())["mutant"]


def test_each_mutant_fits_the_code() -> None:
    assert mismatches(MUTANTS) == []


def test_tie_list_names_each_mutant_once() -> None:
    groups = tomllib.loads((HERE / "tie.toml").read_text())
    listed = [name for group in groups.values() for name in group["mutants"]]
    assert sorted(listed) == sorted(mutant["name"] for mutant in MUTANTS)


def test_tie_refuses_nine_of_ten_mutants_that_break_safety() -> None:
    groups = tomllib.loads((HERE / "tie.toml").read_text())
    refused, accepted = (len(groups[name]["mutants"]) for name in ("refused", "accepted"))
    assert refused >= 0.9 * (refused + accepted)


def test_page_states_the_numbers() -> None:
    page = (HERE.parents[1] / "docs/verification.md").read_text()
    groups = tomllib.loads((HERE / "tie.toml").read_text())
    numbers = {name: len(group["mutants"]) for name, group in groups.items()}
    assert f"lists {sum(numbers.values())} mutants." in page
    refused, accepted = numbers.pop("refused"), numbers.pop("accepted")
    numbers["not run"] = numbers.pop("scripts") + numbers.pop("unsimulated")
    assert f"| break exclusion or fences | {refused + accepted} | refuses {refused}. " in page
    table = page[page.index("| break exclusion or fences |") :].split("\n\n")[0]
    assert [int(row.split("|")[2]) for row in table.splitlines()[1:]] == [*numbers.values()]
