"""A short chaos run with clients that lock through `quorlock serve`, and one that must fail.

`make chaos-serve` performs a longer run.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from chaos.exercise import Happened, counted, exercise
from chaos.faults import LAYERS, NETWORK_FAULTS
from chaos.history import language
from chaos.run import report, run
from serve.clients import LIBRARIES
from serve.conftest import need

Languages = tuple[str, ...]
NATIVE: Languages = ("Python", "Node.js")
THROUGH_DAEMON: Languages = ("Go", "Java")
LANGUAGES = NATIVE + THROUGH_DAEMON


@pytest.fixture(scope="module")
def libraries() -> None:
    """Installs the libraries of the clients that lock through a daemon."""
    for library in LIBRARIES:
        if library.language in THROUGH_DAEMON:
            need(library)


@pytest.mark.usefixtures("libraries")
def test_there_is_no_violation_through_a_daemon(tmp_path: Path) -> None:
    exercise(tmp_path, happened, serve=True)


def happened(figures: dict[str, Any]) -> Happened:
    """Whether a run has exercised each kind of lock and fault, in all languages."""
    kinds = LAYERS.keys() - NETWORK_FAULTS.keys()
    wanted: dict[str, Iterable[str]] = {
        "acquisitions": LANGUAGES,
        "two resources": LANGUAGES,
        "shared": LANGUAGES,
        "permits": LANGUAGES,
        "faults": kinds,
    }
    hand_overs = figures["hand-overs"]
    return counted(figures, wanted) | {
        "a client with a daemon adopted": handed_over(hand_overs, NATIVE, THROUGH_DAEMON) > 0,
        "a client without one adopted": handed_over(hand_overs, THROUGH_DAEMON, NATIVE) > 0,
        "a daemon was killed while a client held": bool(figures["disconnected"]),
    }


def handed_over(counts: dict[str, int], givers: Languages, adopters: Languages) -> int:
    """Counts the leases that clients in some languages adopted from those in others."""
    pairs = product(givers, adopters)
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
    assert any("Node.js" in pair and pair & {*THROUGH_DAEMON} for pair in pairs)
    assert "crash" not in {violation.kind for violation in result.violations}
