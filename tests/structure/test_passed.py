"""`make test` skips a suite only if it has passed with the same sources and settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import passed
import pytest


def _change_source(root: Path) -> None:
    (root / "core/src/lib.rs").write_text("two")


def _add_source(root: Path) -> None:
    (root / "core/src/new.rs").write_text("")


def _move_source(root: Path) -> None:
    (root / "core/src/lib.rs").rename(root / "core/lib.rs")


@pytest.mark.parametrize("change", [_change_source, _add_source, _move_source])
def test_a_changed_source_makes_a_suite_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(passed, "ROOT", tmp_path)
    (tmp_path / "core/src").mkdir(parents=True)
    (tmp_path / "core/src/lib.rs").write_text("one")
    suites = passed.Passed(tmp_path / "passed")
    suites.add("model", passed.fingerprint())
    assert suites.has("model", passed.fingerprint())
    assert not suites.has("proof", passed.fingerprint())
    change(tmp_path)
    assert not suites.has("model", passed.fingerprint())


@pytest.mark.parametrize("name", passed.SETTINGS)
def test_another_setting_makes_a_suite_run_again(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    before = passed.fingerprint()
    monkeypatch.setenv(name, "17")
    assert passed.fingerprint() != before


def test_all_sources_exist() -> None:
    assert all((passed.ROOT / source).exists() for source in passed.SOURCES)
