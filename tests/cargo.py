"""Builds Rust programs with cargo, for the Python tests."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

PACKAGES = ["-p", "quorlock-protocol", "-p", "quorlock", "-p", "quorlock-cli"]
"""The packages to build: the same set as in `make test-rust`. With a different set, cargo would
compile the dependencies again."""


def build(*targets: str) -> list[dict[str, Any]]:
    """Builds these targets. If `make test-rust` has built the project, this compiles nothing.

    Returns cargo's description of each artifact.
    """
    options = ["--locked", "--quiet", "--message-format=json-render-diagnostics"]
    done = subprocess.run(
        ["cargo", "build", *PACKAGES, *targets, *options],
        cwd=ROOT,
        env={**os.environ, "RUSTFLAGS": "--cfg tokio_unstable"},
        stdout=subprocess.PIPE,
        check=True,
    )
    messages = map(json.loads, done.stdout.splitlines())
    return [message for message in messages if message["reason"] == "compiler-artifact"]


def build_example(name: str) -> Path:
    """Builds an example of the crate `quorlock`, and returns the path of the program."""
    artifacts = build("--example", name)
    return Path(next(found["executable"] for found in artifacts if found["executable"]))
