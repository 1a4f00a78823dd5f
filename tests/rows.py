"""Reads the rows of tests/vectors, converts their options, and checks the errors that they
expect."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quorlock

VECTORS = Path(__file__).resolve().parent / "vectors"
DURATIONS = {
    "ttl",
    "wait",
    "heartbeat_timeout",
    "max_hold",
    "node_timeout",
    "connect_timeout",
    "retry_delay",
    "restart_guard",
    "keep",
    "within",
}


def load(name: str) -> Any:
    """Returns the content of a file of vectors."""
    return json.loads((VECTORS / name).read_text())


ERRORS = {row["code"]: getattr(quorlock, row["class"]) for row in load("errors.json")}


def python_value(option: str, value: Any) -> Any:
    """Converts a value of the vectors: milliseconds to seconds, {"number": "NaN"} to a float."""
    if option == "mode":
        return value
    if isinstance(value, dict):
        return float(value["number"])
    if option in DURATIONS and isinstance(value, list) and value:
        return tuple(item / 1000 for item in value)
    if option in DURATIONS and isinstance(value, int | float) and not isinstance(value, bool):
        return value / 1000
    return value


def python_options(options: dict[str, Any]) -> dict[str, Any]:
    """Converts options of the vectors to keyword arguments."""
    return {name: python_value(name, value) for name, value in options.items()}


def expect(case: dict[str, Any], action: Callable[[], Any]) -> Any:
    """Runs the action and returns its result.

    If the case expects an error, checks its class, code, texts and outcomes instead.
    """
    if case.get("error") is None:
        return action()
    with pytest.raises(ERRORS[case["error"]]) as caught:
        action()
    error: quorlock.QuorlockError = caught.value
    assert error.code == case["error"]
    shown = f"{error} {error!r} {error.nodes} {error.resources}"
    for part in case.get("contains", []):
        assert part.replace("{name}", case.get("option", "")) in str(error)
    for secret in case.get("never", []):
        assert secret not in shown
    for node, outcome in zip(error.nodes, case.get("outcomes", []), strict=False):
        assert outcome in (None, node.outcome), error
    if "outcomes" in case:
        assert len(error.nodes) == len(case["outcomes"])
    if "holder" in case:
        assert isinstance(error, quorlock.LockTimeoutError)
        assert error.holder == case["holder"]
    if "reason" in case:
        assert isinstance(error, quorlock.LeaseLostError)
        assert error.reason == case["reason"]
    if "about" in case:
        assert error.resources == tuple(case["about"])
        assert error.resource == case["about"][0]
    return None
