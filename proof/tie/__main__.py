"""Runs simulated seeds and checks that what they did is a run of the proof: `make tie`.

    python -m proof.tie [--seeds N] [--first N] [--program FILE]
    python -m proof.tie FILE...

Exits with status 1 if any step of a run is no step of the proof.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from time import monotonic

from proof.tie.checking import Result, check

ROOT = Path(__file__).resolve().parents[2]
CHUNK = 10
"""So many seeds are simulated together. Their steps take up to 200 MB."""

PACKAGES = ["-p", "quorlock-protocol", "-p", "quorlock", "-p", "quorlock-cli"]


def built() -> Path:
    """Builds the tests of the core, and returns the program."""
    command = ["cargo", "test", "--locked", *PACKAGES, "--lib", "--no-run"]
    done = subprocess.run(
        [*command, "--message-format", "json-render-diagnostics"],
        cwd=ROOT,
        env=os.environ | {"RUSTFLAGS": "--cfg tokio_unstable"},
        stdout=subprocess.PIPE,
        check=True,
    )
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
    programs = [
        message["executable"]
        for message in messages
        if message.get("executable") and message["target"]["name"] == "quorlock"
    ]
    return Path(programs[0])


def simulate(program: Path, directory: str, tests: str, first: int, seeds: int) -> list[Path]:
    """Simulates some seeds, and returns the files of their steps. What else the simulation finds is
    not the concern of this check."""
    for file in Path(directory).iterdir():
        file.unlink()
    settings = {"STEPS": directory, "FIRST_SEED": str(first), "SEEDS": str(seeds)}
    done = subprocess.run(
        [program, tests],
        env=os.environ | settings,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    files = [file for file in sorted(Path(directory).iterdir()) if file.stat().st_size]
    # A failed test is status 101. Without its steps, a seed would count as accepted.
    if done.returncode not in (0, 101) or not files or (seeds and len(files) != seeds):
        raise SystemExit(f"tie: steps of {len(files)} runs, not {seeds}, status {done.returncode}")
    return files


def check_seeds(program: Path, first: int, seeds: int) -> list[Result]:
    """Simulates some seeds, and checks them. No seeds: the hand-written scenarios."""
    with tempfile.TemporaryDirectory() as directory:
        tests = "simulation::check" if seeds else "simulation::directed"
        return [check(file) for file in simulate(program, directory, tests, first, seeds)]


def results(arguments: argparse.Namespace) -> Iterator[Result]:
    """Yields the result of each run."""
    with ProcessPoolExecutor() as pool:
        if arguments.files:
            yield from pool.map(check, map(Path, arguments.files))
            return
        program = Path(arguments.program) if arguments.program else built()
        first, end = arguments.first, arguments.first + arguments.seeds
        chunks = [(at, min(CHUNK, end - at)) for at in range(first, end, CHUNK)]
        jobs = [pool.submit(check_seeds, program, at, size) for at, size in [(0, 0), *chunks]]
        for job in jobs:
            yield from job.result()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proof.tie")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--seeds", type=int, default=int(os.environ.get("SEEDS", "30")))
    parser.add_argument("--first", type=int, default=int(os.environ.get("FIRST_SEED", "1")))
    parser.add_argument("--program")
    arguments = parser.parse_args()
    began, found = monotonic(), []
    for result in results(arguments):
        found.append(result)
        if result.error:
            print(result.error, flush=True)
    failed = sum(bool(result.error) or not result.steps for result in found)
    print(
        f"tie: {len(found):,} runs with {sum(result.steps for result in found):,} steps are "
        f"{sum(result.transitions for result in found):,} transitions of the proof; all conjuncts "
        f"evaluated {sum(result.evaluations for result in found):,} times; {failed} runs refused; "
        f"{monotonic() - began:.0f} s"
    )
    return 1 if failed or not found else 0


if __name__ == "__main__":
    sys.exit(main())
