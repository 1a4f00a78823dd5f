"""A short chaos run with clients that lock through `quorlock serve`, and one that must fail.

`make chaos-serve` performs a longer run.
"""

from __future__ import annotations

import json
import os
import random
from itertools import permutations, product
from pathlib import Path

import pytest
from chaos.faults import LAYERS, NETWORK_FAULTS
from chaos.history import language
from chaos.run import report, run
from serve.clients import LIBRARIES
from serve.conftest import need

SECONDS = float(os.environ.get("CHAOS_SECONDS", "15"))
"""The minimum duration of the storms."""
SEED = int(os.environ.get("CHAOS_SEED", random.randrange(1_000_000)))
LANGUAGES = {"natively": ["Python", "Node.js"], "daemon": ["Go", "Java"]}


@pytest.fixture(scope="module")
def libraries() -> None:
    """Installs the libraries of the clients that lock through a daemon."""
    for library in LIBRARIES:
        if library.language in ("Go", "Java"):
            need(library)


@pytest.mark.usefixtures("libraries")
def test_there_is_no_violation_through_a_daemon(tmp_path: Path) -> None:
    print(f"CHAOS_SEED={SEED}, files in {tmp_path}")
    result = run(SECONDS, SEED, tmp_path, serve=True)
    assert report(result)
    figures = json.loads((tmp_path / "summary.json").read_text())
    assert figures["violations"] == []
    for name in ("Python", "Node.js", "Go", "Java"):
        assert figures["acquisitions"][name] > 0
        assert figures["two resources"][name] > 0
        assert figures["shared"][name] > 0, figures["shared"]
        assert figures["permits"][name] > 0, figures["permits"]
    for pair in permutations(("natively", "daemon"), 2):
        assert handed_over(figures["hand-overs"], *pair) > 0, figures["hand-overs"]
    assert figures["disconnected"], "no daemon was killed while a client held a lease"
    kinds = LAYERS.keys() - NETWORK_FAULTS.keys()
    assert all(figures["faults"].get(kind) for kind in kinds), figures["faults"]


def handed_over(counts: dict[str, int], giver: str, adopter: str) -> int:
    """Counts the leases that clients with a daemon adopted from those without, or the reverse."""
    pairs = product(LANGUAGES[giver], LANGUAGES[adopter])
    return sum(counts.get(" to ".join(pair), 0) for pair in pairs)


@pytest.mark.usefixtures("libraries")
def test_the_checker_finds_overlaps_with_leases_of_a_daemon(tmp_path: Path) -> None:
    result = run(0, 1, tmp_path, "split", serve=True)
    assert not report(result)
    clients = {lease.token: language(lease.client) for lease in result.leases}
    pairs = [
        {clients[token] for token in violation.tokens}
        for violation in result.violations
        if violation.kind == "overlap"
    ]
    # Node.js locks on other nodes than the daemon.
    assert any("Node.js" in pair and pair & {"Go", "Java"} for pair in pairs)
    assert "crash" not in {violation.kind for violation in result.violations}
