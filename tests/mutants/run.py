"""`make mutants`: applies each mutant in mutants.toml, and shows which check catches it.

A mutant is a deliberate error in the protocol, the driver or the scripts. The exit status is 1 if
a mutant is caught by no check. ONLY=pattern runs only the mutants whose names match, and CHECK=name
runs only that check.
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
"""A copy of the sources, in which the mutants are applied and built."""

CORE = ["-p", "quorlock"]
PROTOCOL = ["-p", "quorlock-protocol"]
TEST = ["cargo", "test", "--locked", "--quiet"]
OWN_CHECK = ["simulation::", "interleavings::", "scripts::"]
CHECKS = {
    "model": ([*PROTOCOL, "--lib"], ["model::"]),
    "protocol": ([*PROTOCOL, "--lib"], ["--skip", "model::"]),
    "unit": ([*CORE, "--lib"], [word for test in OWN_CHECK for word in ("--skip", test)]),
    "interleavings": ([*CORE, "--lib"], ["interleavings::"]),
    "scripts": ([*CORE, "--lib"], ["scripts::"]),
    "simulation": ([*CORE, "--lib"], ["simulation::"]),
    "tie": ([], []),
    "test_nodes": ([*CORE, "--test", "test_nodes"], []),
    "garbage": ([*CORE, "--test", "garbage"], []),
    "integration": ([*CORE, "--test", "integration"], []),
    "command": (["-p", "quorlock-cli", "--lib"], []),
}
"""The checks, in the order in which they run: the cargo target, and the filter for its tests.
`tie` is a program in Python, which builds what it needs.
`make test` runs all of them."""

MODELLED = "core/protocol/"
"""The sources that the model runs."""

REAL_SERVERS_ONLY = tuple(f"core/src/wire/{name}" for name in ("script", "commands", "parse"))
"""Sources that neither the model nor the simulation runs."""

ENVIRONMENT = {
    "CARGO_TARGET_DIR": str(COPY / "target"),
    "CARGO_INCREMENTAL": "1",
    "RUSTFLAGS": "--cfg tokio_unstable",
}

TIMEOUT = 900
"""The time limit of a check, in seconds. A check that hangs has caught the mutant."""


def copy_sources() -> None:
    """Copies the files of the repository, except those that Git ignores."""
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


def is_passed(check: str, tests: list[str] | None = None) -> bool:
    """Runs the check, or only the given tests of it, on the copy. Returns whether it passes."""
    target, all_tests = CHECKS[check]
    command = [*TEST, *target, "--", *(tests or all_tests)]
    if check == "tie":
        command = [sys.executable, "-m", "proof.tie"]
    try:
        done = subprocess.run(
            command,
            cwd=COPY,
            env=os.environ | ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return False
    if "could not compile" in done.stdout:
        raise SystemExit(f"a mutant does not compile:\n{done.stdout}")
    return done.returncode == 0


def mutated(text: str, mutant: dict[str, Any]) -> str:
    for change in [mutant, *mutant.get("also", [])]:
        text = text.replace(change["find"], change["replace"])
    return text


def mismatches(mutants: list[dict[str, Any]]) -> list[str]:
    """Returns an error for each text to replace that does not occur exactly once in its file."""
    return [
        f"{mutant['name']}: does not occur exactly once in its file: {change['find']!r}"
        for mutant in mutants
        for change in [mutant, *mutant.get("also", [])]
        if (ROOT / mutant["file"]).read_text().count(change["find"]) != 1
    ]


def checks_for(mutant: dict[str, Any]) -> list[str]:
    """Returns the check that the mutant names, or else all checks that run the mutant's file."""
    if chosen := os.environ.get("CHECK"):
        return [chosen]
    if "check" in mutant:
        return [mutant["check"]]
    file = mutant["file"]
    # The checks `interleavings`, `garbage` and `command` run only for mutants that name them.
    excluded = {"interleavings", "garbage", "command"}
    if not file.startswith(MODELLED):
        excluded |= {"model", "protocol"}
    if file.startswith(REAL_SERVERS_ONLY):
        excluded |= {"simulation", "tie"}
    return [check for check in CHECKS if check not in excluded]


def catcher(mutant: dict[str, Any]) -> str | None:
    """Returns the first check that catches the mutant; None if no check does."""
    file = COPY / mutant["file"]
    original = file.read_text()
    file.write_text(mutated(original, mutant))
    tests = mutant.get("tests")
    try:
        return next((name for name in checks_for(mutant) if not is_passed(name, tests)), None)
    finally:
        file.write_text(original)


def main() -> int:
    mutants = tomllib.loads((HERE / "mutants.toml").read_text())["mutant"]
    if found := mismatches(mutants):
        raise SystemExit("\n".join(found))
    only = os.environ.get("ONLY", "")
    mutants = [mutant for mutant in mutants if re.search(only, mutant["name"])]
    copy_sources()
    for check in CHECKS:
        needed = [mutant.get("tests") for mutant in mutants if check in checks_for(mutant)]
        tests = None if None in needed else sorted({test for tests in needed for test in tests})
        if needed and not is_passed(check, tests):
            raise SystemExit(f"{check} fails without a mutant")
    survivors = []
    for mutant in mutants:
        began = time.monotonic()
        caught_by = catcher(mutant)
        print(
            f"{mutant['name']:<72}{caught_by or 'SURVIVES':<12}{time.monotonic() - began:5.0f} s",
            flush=True,
        )
        if caught_by is None:
            survivors.append(mutant["name"])
    print(f"\n{len(mutants) - len(survivors)} of {len(mutants)} mutants caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
