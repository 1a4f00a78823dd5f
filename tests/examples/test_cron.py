"""examples/cron: the program that the crontab and the unit file start with `quorlock run`."""

from __future__ import annotations

import shlex
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from examples.gateway import Gateway
from examples.installing import EXAMPLES, ROOT
from examples.programs import Program
from nodes import keys, steal
from servers import Servers
from waiting import wait_until

pytestmark = pytest.mark.skipif(
    not (ROOT / "cli").is_dir(), reason="there is no command line in this version"
)

PROGRAM = "/opt/report/report.py"
QUORLOCK = str(Path(sys.executable).with_name("quorlock"))

Cron = Callable[[], Program]


def command_of(file: str) -> list[str]:
    """Returns the command in the file, with the path of the program in the repository."""
    lines = (EXAMPLES / "cron" / file).read_text().splitlines()
    line = next(line for line in lines if PROGRAM in line)
    words = shlex.split(line[line.index("quorlock run") :])
    return [{"quorlock": QUORLOCK, PROGRAM: "./report.py"}.get(word, word) for word in words]


@pytest.fixture
def start_job(start: Callable[..., Program]) -> Cron:
    """`start_job()` starts the command of the crontab, as cron on one host does."""

    def start_job() -> Program:
        return start(command_of("crontab"), "cron")

    return start_job


def test_one_host_creates_the_report(
    start_job: Cron, gateway: Gateway, servers: Servers, tmp_path: Path
) -> None:
    gateway.hold()
    first = start_job()
    wait_until(lambda: gateway.states == ["in progress"])
    assert start_job().end() == 0
    gateway.release()
    first.wait_for("published")
    assert first.end() == 0
    late = start_job()
    late.wait_for("is done")
    assert late.end() == 0
    assert gateway.states == ["answered"]
    with closing(sqlite3.connect(tmp_path / "database")) as database:
        assert database.execute("SELECT fence > 0 FROM reports").fetchall() == [(1,)]
    assert not keys(servers)


def test_the_unit_file_accepts_the_exit_status_of_a_held_lock(
    start_job: Cron, start: Callable[..., Program], gateway: Gateway
) -> None:
    gateway.hold()
    start_job()
    wait_until(lambda: gateway.states == ["in progress"])
    unit = (EXAMPLES / "cron" / "report.service").read_text()
    status = start(command_of("report.service"), "cron").end()
    assert f"SuccessExitStatus={status}\n" in unit


def test_a_lost_lease_ends_the_program(
    start_job: Cron, gateway: Gateway, servers: Servers, tmp_path: Path
) -> None:
    gateway.hold()
    first = start_job()
    wait_until(lambda: gateway.states == ["in progress"])
    steal(servers, "nightly-report")
    assert first.end() == 79
    wait_until(lambda: gateway.states == ["aborted"])
    with closing(sqlite3.connect(tmp_path / "database")) as database:
        assert database.execute("SELECT count(*) FROM reports").fetchone() == (0,)


def test_the_program_is_not_run_without_a_quorum(
    start_job: Cron, gateway: Gateway, servers: Servers
) -> None:
    servers[0].freeze()
    servers[1].freeze()
    assert start_job().end() == 69
    assert not gateway.calls
