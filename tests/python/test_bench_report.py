"""The published figures are those of the committed results."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.page import PAGES, page, with_excerpt
from bench.settings import ROOT, results_file


@pytest.fixture
def results() -> dict[str, Any]:
    return {topic: json.loads(results_file(topic).read_text()) for topic in PAGES}


def test_the_page_shows_the_committed_results(results: dict[str, Any]) -> None:
    written = (ROOT / "docs" / "performance.md").read_text()
    assert page(results) == written
    results["scale"]["nodes"]["1"]["median"] += 100
    assert page(results) != written


def test_the_readme_shows_the_committed_results(results: dict[str, Any]) -> None:
    written = (ROOT / "README.md").read_text()
    assert with_excerpt(written, results["performance"]) == written
    results["performance"]["one at a time"]["5"]["floor"]["median"] += 100
    assert with_excerpt(written, results["performance"]) != written


def test_a_failed_contender_and_a_missed_goal_are_shown(results: dict[str, Any]) -> None:
    results["serve"]["cycles"]["1"]["redsync"] = {"failure": "hangs: for 10 s"}
    results["serve"]["idle"]["with"] = 200e6
    text = page(results)
    assert "| redsync | hangs | | | |" in text
    assert "idle connections | at most 100 MB | 200.00 | **no** |" in text
