"""`make mutants`: breaks the protocol in every way that mutants.toml lists, and shows which check
catches it. Exit status 1 if one is caught by none.

ONLY=pattern runs those whose names match it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COPY = ROOT / ".cache" / "mutants"
"""A copy of the sources, to be broken, and what is built of them."""

TEST = ["cargo", "test", "--locked", "--quiet", "-p", "quorlock", "--lib"]
CHECKS = {
    "model": [*TEST, "--no-default-features", "model::"],
    "simulation": [*TEST, "simulation::"],
}
"""What may catch a mutant, the quicker first."""

MODELLED = (
    "core/src/protocol/",
    "core/src/entry.rs",
    "core/src/queue.rs",
    "core/src/slot.rs",
)
"""What the model runs."""

ENVIRONMENT = {"CARGO_TARGET_DIR": str(COPY / "target"), "RUSTFLAGS": "--cfg tokio_unstable"}

PATIENCE = 900
"""Seconds for a check. One that hangs has noticed something, too."""


def copy_sources() -> None:
    """What is under version control, or would be."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source, target = ROOT / name, COPY / name
        if not source.is_file():
            target.unlink(missing_ok=True)
        elif not target.is_file() or source.read_bytes() != target.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def is_passed(command: list[str]) -> bool:
    """Whether the check has nothing to say against the copy."""
    try:
        done = subprocess.run(
            command,
            cwd=COPY,
            env=os.environ | ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return False
    if "could not compile" in done.stdout:
        raise SystemExit(f"a mutant does not compile:\n{done.stdout}")
    return done.returncode == 0


def mutated(name: str, text: str, mutant: dict[str, Any]) -> str:
    for change in [mutant, *mutant.get("also", [])]:
        if text.count(change["find"]) != 1:
            raise SystemExit(f"{name}: this is not there just once: {change['find']!r}")
        text = text.replace(change["find"], change["replace"])
    return text


def catcher(mutant: dict[str, Any]) -> str | None:
    """The check that catches the mutant."""
    file = COPY / mutant["file"]
    sound = file.read_text()
    file.write_text(mutated(mutant["name"], sound, mutant))
    in_model = mutant["file"].startswith(MODELLED)
    checks = [(name, check) for name, check in CHECKS.items() if in_model or name != "model"]
    try:
        return next((name for name, check in checks if not is_passed(check)), None)
    finally:
        file.write_text(sound)


def main() -> int:
    mutants = tomllib.loads((HERE / "mutants.toml").read_text())["mutant"]
    only = os.environ.get("ONLY", "")
    mutants = [mutant for mutant in mutants if re.search(only, mutant["name"])]
    copy_sources()
    for name, check in CHECKS.items():
        if not is_passed(check):
            raise SystemExit(f"{name} fails without any mutant")
    survivors = []
    for mutant in mutants:
        began = time.monotonic()
        caught_by = catcher(mutant)
        print(
            f"{mutant['name']:<64}{caught_by or 'SURVIVES':<12}{time.monotonic() - began:5.0f} s",
            flush=True,
        )
        if caught_by is None:
            survivors.append(mutant["name"])
    print(f"\n{len(mutants) - len(survivors)} of {len(mutants)} mutants caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
