"""Which suites have passed, and with which sources."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ["core", "proof", "Cargo.toml", "Cargo.lock", "Makefile"]
"""The files and directories that the suites which only compute are built from."""
SETTINGS = ["SEED", "SEEDS", "FIRST_SEED", "MODEL", "SCOPE", "RUSTFLAGS"]
"""The environment variables that these suites read."""


def fingerprint() -> str:
    """Returns a hash of all that the result of a suite that only computes depends on."""
    cargo = subprocess.run(["cargo", "--version"], check=True, capture_output=True, text=True)
    digest = hashlib.sha256(f"{cargo.stdout}{sys.version}".encode())
    for name in SETTINGS:
        digest.update(f"{name}={os.environ.get(name)}\0".encode())
    for source in SOURCES:
        for file in sorted([ROOT / source, *(ROOT / source).rglob("*")]):
            if file.is_file() and "__pycache__" not in file.parts:
                content = file.read_bytes()
                digest.update(f"{file.relative_to(ROOT)}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


class Passed:
    """The fingerprints with which suites have passed, kept in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def has(self, suite: str, sources: str) -> bool:
        file = self._directory / suite
        return file.exists() and file.read_text() == sources

    def add(self, suite: str, sources: str) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / suite).write_text(sources)
