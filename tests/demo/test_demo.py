"""`make demo`: its output, its timeline, and its checks, which must fail without the lock."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "demo" / "run.py"


def environment(timelines: Path, **more: str) -> dict[str, str]:
    """The environment for a short demo. The program `true` replaces make, because `make build` has
    been run already."""
    return {**os.environ, "SECONDS": "4", "MAKE": "true", "TIMELINES": str(timelines), **more}


def run_demo(timelines: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a short demo whose output is not a terminal, and returns the completed process."""
    return subprocess.run(
        [sys.executable, str(PROGRAM)],
        env=environment(timelines, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def found(output: str, check: str) -> int:
    """Returns the count in the table's row for this check. Fails unless the row expects 0."""
    [figure] = re.findall(rf"^{check}.* 0 +([\d,]+)$", output, re.MULTILINE)
    return int(figure.replace(",", ""))


def test_with_the_lock_no_update_is_lost(tmp_path: Path) -> None:
    done = run_demo(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for check in ("updates lost", "updates that began", "fencing tokens"):
        assert found(done.stdout, check) == 0
    for name in ("Python threads", "Python asyncio", "Node.js 1", "Node.js 2"):
        assert re.search(rf"^{re.escape(name)} +[1-9]", done.stdout, re.MULTILINE)

    introduction, plan, steps, progress, *_, last = done.stdout.split("\n\n")
    assert "four processes" in introduction
    assert "no update is lost" in introduction
    for text in (plan, steps):
        numbers = re.findall(r"^(\d/3)  ", text, re.MULTILINE)
        assert sorted(set(numbers)) == ["1/3", "2/3", "3/3"]
    events = re.findall("-- (.*)", progress)
    assert events == [
        "server 2 is killed",
        "server 4 is frozen",
        "server 2 is restarted, empty",
        "server 4 is resumed",
    ]
    assert "3 of 5" in progress
    assert "Next: " in last

    timeline = tmp_path / "demo.html"
    assert f"Timeline, for a browser: {timeline.as_uri()}" in last
    page = timeline.read_text()
    assert all(f"</b> {moment}" in re.sub(r"[\d.]+ s: ", "", page) for moment in events)
    assert "The lock held" in page


def test_without_the_lock_updates_are_lost(tmp_path: Path) -> None:
    done = run_demo(tmp_path, LOCK="off")
    assert done.returncode == 1, done.stdout + done.stderr
    lost = found(done.stdout, "updates lost")
    assert lost > 0
    timeline = tmp_path / "demo-without-lock.html"
    assert done.stdout.splitlines()[-2] == f"Timeline, for a browser: {timeline.as_uri()}"
    for text in (done.stdout, timeline.read_text()):
        assert f"Without the lock, {lost:,} of " in text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_a_timeline(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, str(PROGRAM)],
        env=environment(tmp_path, SECONDS="60"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        for line in process.stdout:
            if re.match(r" +[2-9]\.\d s ", line):
                break
        process.send_signal(number)
        rest = process.stdout.read()
    assert process.returncode == 128 + number
    timeline = tmp_path / "demo.html"
    assert f"Timeline, for a browser: {timeline.as_uri()}" in rest
    page = timeline.read_text()
    assert "The run was interrupted: " in page
    assert "after a wait of" in page


def test_a_timeline_that_cannot_be_written_does_not_change_the_result(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run_demo(tmp_path / "file", SECONDS="2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The timeline could not be written: " in done.stdout


def test_a_failed_build_is_shown(tmp_path: Path) -> None:
    done = run_demo(tmp_path, MAKE="false")
    assert done.returncode == 1
    assert "2/3  Compiling quorlock: failed" in done.stderr
    assert "3/3  Running" not in done.stdout


@pytest.mark.parametrize("missing", ["cargo", "cc", "node"])
def test_missing_tools_are_named_before_anything_is_done(tmp_path: Path, missing: str) -> None:
    for tool in {"cargo", "cc", "node"} - {missing}:
        program = tmp_path / tool
        program.write_text("#!/bin/sh\necho v20.19.0\n")
        program.chmod(0o755)
    done = run_demo(tmp_path, PATH=str(tmp_path))
    assert done.returncode == 1
    names = {"cargo": "Rust", "cc": "a C compiler", "node": "Node.js"}
    needed = [line for line in done.stderr.splitlines() if line.startswith("- ")]
    assert len(needed) == 1
    assert needed[0].startswith(f"- {names[missing]}")
    assert "Compiling" not in done.stdout
