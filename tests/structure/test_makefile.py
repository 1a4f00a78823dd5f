"""`make test` runs each test program of the core."""

from __future__ import annotations

import re

from structure import rooms


def test_make_runs_each_test_program_of_the_core() -> None:
    recipe = (rooms.ROOT / "Makefile").read_text().split("\ntest-rust:")[1].split("\n\n")[0]
    programs = {path.stem for path in (rooms.ROOT / "core/tests").iterdir()}
    assert set(re.findall(r"--test (\w+)", recipe)) == programs
