"""What tests in Python need from cargo."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

PACKAGES = ["-p", "quorlock-protocol", "-p", "quorlock", "-p", "quorlock-cli"]
"""Those that `make test-rust` names: with others, cargo would compile dependencies once more."""


def build(*targets: str) -> list[dict[str, Any]]:
    """Builds these targets as `make test-rust` does, and returns their artifacts as cargo describes
    them. After `make test-rust` nothing is left to compile."""
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
    """Builds an example of the crate `quorlock`, and returns the program."""
    artifacts = build("--example", name)
    return Path(next(found["executable"] for found in artifacts if found["executable"]))
