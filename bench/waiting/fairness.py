"""Fairness: equal clients that contend for the same lock for a longer time."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bench.progress import progress
from bench.settings import pick
from bench.waiting.contenders import FAIR, present
from bench.waiting.handing import SECONDS
from bench.waiting.turns import fairness
from bench.waiting.workers import workers

CLIENTS = pick(16, 8)
LENGTH = 10 * SECONDS


def measure() -> dict[str, dict[str, Any]]:
    """Returns the turns and waits of the luckiest and the unluckiest client, by contender."""
    results = {}
    for contender in (each for each in FAIR if each in present()):
        progress(f"fairness: {CLIENTS} x {contender.name}, {LENGTH:g} s")
        name = f"fair-{contender.library}"
        with workers().opened(contender, name, CLIENTS) as opened:
            outcome = opened.loop(name, LENGTH)
        found = fairness(outcome.turns, CLIENTS, outcome.until, outcome.unfinished)
        results[contender.name] = asdict(found) | {
            "turns ratio": found.turns_ratio,
            "wait ratio": found.wait_ratio,
        }
    return results
