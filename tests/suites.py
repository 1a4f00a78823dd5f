"""Runs the suites of `make test` or `make verify`: shows what is running and how long that will
take, and at the end how long each suite and the slowest tests took.

    python tests/suites.py test|verify

A suite is a target of the Makefile. `make test` skips those that only compute, such as the model,
if they have passed with the same sources. The output of a suite goes to build/test/, and is printed
if the suite fails.
A suite of `make test` that hangs is ended after 40 minutes.
The exit status is 1 if any suite failed, after all of them have ended.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NoReturn

from durations import LastRun, directories, node_tests, percent, python_tests, slowest
from passed import Passed, fingerprint

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "build" / "test"
JUNIT = LOGS / "test-python.xml"
PROGRESS_EVERY = 60
"""Seconds between two lines that tell what is running."""


@dataclass(frozen=True)
class Suite:
    """One target of the Makefile."""

    target: str
    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """Default values of environment variables. Variables of this process take precedence."""
    only_computes: bool = False
    """Whether its result depends on nothing but its sources. If so, `make test` does not run it
    again while these are the same, and runs it at the lowest CPU priority."""


YIELD = '{ echo 19 > /proc/self/autogroup; } 2> /dev/null; exec nice -n 19 "$@"'
"""Runs a command at the lowest priority. Linux may first divide CPU time among sessions, whatever
the niceness of their processes. Each suite is a session, so the session gets this niceness too."""


Lane = Sequence[Suite]
"""Suites that run one after the other. Lanes run side by side."""

BUILD = Suite("build-tests", "build")

# Tests in Rust, Node.js and Python wait for servers and timers. Each suite runs many of them at the
# same time, so the suites run one after another. The model, the proof, the simulation and the
# tie only compute, in the CPU time that these leave.
TEST: Sequence[Lane] = [
    [
        Suite("test-rust", "Rust"),
        Suite("test-node", "Node.js"),
        Suite("test-python", "Python", {"PYTEST_ADDOPTS": f"--junitxml={JUNIT}"}),
    ],
    [
        Suite("model", "model", only_computes=True),
        Suite("proof", "proof", only_computes=True),
        Suite("simulate", "simulation", only_computes=True),
        Suite("tie", "proof, tied to the code", only_computes=True),
    ],
]

# Long runs, which `make test` has only in short forms or not at all. They run one after another, so
# that the load of one suite cannot cause a failure in another.
VERIFY: Sequence[Lane] = [
    [
        Suite("chaos", "chaos, 10 minutes", {"SECONDS": "600"}),
        Suite("chaos-serve", "chaos through serve, 1 minute", {"SECONDS": "60"}),
        Suite("soak-serve", "serve under load, 10 minutes", {"SECONDS": "600"}),
        Suite("test-rolling", "rolling restarts, 10 minutes", {"ROLLING_SECONDS": "300"}),
        Suite("test-clients", "serve, all clients"),
        Suite("test-packages", "packages, as released"),
        Suite("simulate", "simulation, 20,000 seeds", {"SEEDS": "20000"}),
        Suite("tie", "proof, tied to the code, 2,000 seeds", {"SEEDS": "2000"}),
        Suite("model", "model, deep", {"MODEL": "deep"}),
        Suite("proof-second", "proof, second solver"),
        Suite("mutants", "mutants"),
    ],
]
PLANS = {"test": TEST, "verify": VERIFY}

LIMITS: Mapping[str, float | None] = {"test": 40 * 60, "verify": None}
"""The time limit of each suite in seconds."""


@dataclass(frozen=True)
class Result:
    """The result of running a suite."""

    suite: Suite
    seconds: float
    passed: bool
    counts: str


class Runner:
    """Runs suites. `end` terminates those that are running."""

    def __init__(self, last: LastRun) -> None:
        self.results: list[Result] = []
        self.began = time.monotonic()
        self._last = last
        self._passed = Passed(ROOT / ".cache" / "passed")
        self._running: dict[subprocess.Popen[bytes], Suite] = {}
        self._is_ending = False
        self._lock = threading.RLock()  # reentrant, for signal handlers that call `end`

    def run_lanes(self, lanes: Sequence[Lane], limit: float | None) -> None:
        """Run all suites to their end, each for at most `limit` seconds."""
        with ThreadPoolExecutor(len(lanes)) as pool:
            jobs = [pool.submit(self._run_lane, lane, limit) for lane in lanes]
            while wait(jobs, PROGRESS_EVERY).not_done:
                self._tell_progress()
            for done in jobs:
                done.result()

    def _run_lane(self, lane: Lane, limit: float | None) -> None:
        for suite in lane:
            if suite.only_computes:
                self._run_once(suite, limit)
            else:
                self.run(suite, limit)

    def _run_once(self, suite: Suite, limit: float | None) -> None:
        """Run a suite, unless it has passed with the same sources."""
        sources = fingerprint()
        if self._passed.has(suite.target, sources):
            counts = "passed before, with the same sources"
            result = Result(suite, 0.0, passed=True, counts=counts)
            with self._lock:
                self.results.append(result)
            print(f"{suite.name}: {counts}", flush=True)
        elif self.run(suite, limit) and fingerprint() == sources:
            self._passed.add(suite.target, sources)

    def run(self, suite: Suite, limit: float | None = None, *, is_shown: bool = False) -> bool:
        """Run one suite. Shows its output while it runs if `is_shown`, otherwise if it fails."""
        log = LOGS / f"{suite.target}.log"
        began = time.monotonic()
        with log.open("wb") as output:
            process = self._start(suite, None if is_shown else output)
            status = _wait(process, limit, log) if process else -signal.SIGTERM
        result = Result(suite, time.monotonic() - began, status == 0, _counts(log))
        with self._lock:
            if process:
                del self._running[process]
            self.results.append(result)
            if not self._is_ending:
                self._tell(result, log, is_shown)
        return result.passed

    def _start(self, suite: Suite, output: BinaryIO | None) -> subprocess.Popen[bytes] | None:
        niceness = ["sh", "-c", YIELD, "sh"] if suite.only_computes else []
        make = os.environ.get("MAKE", "make")
        # Omits MAKEFLAGS, so that the suite does not use the job server of the calling `make`.
        own = {
            name: value
            for name, value in os.environ.items()
            # Settings of this machine's clients are not for tests.
            if name != "MAKEFLAGS" and not name.startswith("QUORLOCK_")
        }
        with self._lock:
            if self._is_ending:
                return None
            process = subprocess.Popen(
                [*niceness, make, "--no-print-directory", suite.target],
                cwd=ROOT,
                env={**suite.environment, **own},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT if output else None,
                start_new_session=True,
            )
            self._running[process] = suite
        return process

    def _tell_progress(self) -> None:
        with self._lock:
            running = [
                f"{suite.name}{percent(LOGS / f'{suite.target}.log')}"
                for suite in self._running.values()
            ]
        passed = time.monotonic() - self.began
        left = self._last.left(passed)
        print(f"{passed / 60:.0f} min: {', '.join(running)}{left}", flush=True)

    def _tell(self, result: Result, log: Path, is_shown: bool) -> None:
        if not result.passed and not is_shown:
            print(f"\n{log.read_text(errors='replace')}", flush=True)
        state = "passed" if result.passed else "FAILED"
        print(f"{result.suite.name}: {state} after {result.seconds:.0f} s", flush=True)

    def end(self) -> None:
        """Terminate the process groups of all running suites, and start no others."""
        with self._lock:
            self._is_ending = True
            for process in self._running:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)


def _wait(process: subprocess.Popen[bytes], limit: float | None, log: Path) -> int:
    """Waits for the end of a suite, and brings it about after `limit` seconds."""
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with log.open("a") as output:
            output.write(f"\nended because it took more than {limit} s\n")
        return process.wait()


def _counts(log: Path) -> str:
    """Returns how many tests passed, failed or were skipped, as logged by cargo, pytest or node."""
    text = log.read_text(errors="replace")
    found: dict[str, int] = defaultdict(int)
    for line in re.findall(
        r"^(?:test result: |[\d=]).*\d (?:passed|failed).*$", text, re.MULTILINE
    ):
        for number, what in re.findall(r"(\d+) (passed|failed|skipped|ignored)", line):
            found[what] += int(number)
    for what, number in re.findall(r"^(?:#|\u2139) (pass|fail|skipped) (\d+)$", text, re.MULTILINE):
        found[{"pass": "passed", "fail": "failed"}.get(what, what)] += int(number)
    return ", ".join(f"{number:,} {what}" for what, number in found.items() if number)


def table(results: Sequence[Result], seconds: float) -> str:
    """Returns a table of the suites: the time that each took, its result, and the slowest tests."""
    of_python = python_tests(JUNIT)
    rows = [f"{'suite':<34}{'seconds':>8}  result"]
    for result in results:
        state = result.counts or "passed" if result.passed else f"FAILED  {result.counts}"
        rows.append(f"{result.suite.name:<34}{result.seconds:>8.0f}  {state}")
        if result.suite.target == "test-python":
            rows += [
                f"  {name:<32}{f'({spent:.0f})':>9} {number:,} tests"
                for name, (spent, number) in directories(of_python).items()
            ]
            rows.append("  (in parentheses: the sum over tests that ran side by side)")
    rows.append(f"{'all':<34}{seconds:>8.0f}  output: build/test/*.log")
    if tests := [*of_python, *node_tests(LOGS / "test-node.log")]:
        rows += ["\nthe slowest tests in Python and Node.js", *slowest(tests)]
    return "\n".join(rows)


def main() -> int:
    plan = PLANS[sys.argv[1]]
    LOGS.mkdir(parents=True, exist_ok=True)
    for old in LOGS.iterdir():
        old.unlink()
    last = LastRun(ROOT / ".cache" / f"{sys.argv[1]}-seconds.json")
    runner = Runner(last)

    def end(number: int, _: object) -> NoReturn:
        runner.end()
        sys.exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    if runner.run(BUILD, is_shown=True):
        names = [suite.name for lane in plan for suite in lane]
        left = last.left(time.monotonic() - runner.began)
        print(f"\nrunning: {'; '.join(names)}{left}", flush=True)
        runner.run_lanes(plan, LIMITS[sys.argv[1]])
    seconds = time.monotonic() - runner.began
    print(f"\n{table(runner.results, seconds)}")
    if any(not result.passed for result in runner.results):
        return 1
    last.save(seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
