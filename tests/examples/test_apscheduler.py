"""examples/apscheduler, with a job that runs every second."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from examples.programs import Program
from nodes import is_free, keys
from servers import Servers
from waiting import wait_until

# Makes the scheduler of the example run the job every second.
EVERY_SECOND = """
import time
from datetime import timedelta
import jobs
start = jobs.scheduler.start
def start_every_second():
    jobs.scheduler.reschedule_job("report", trigger="cron", second="*")
    start()
jobs.scheduler.start = start_every_second
jobs.EVERY = timedelta(seconds=1)
"""
HANG = """
def hang(lease, period):
    print("the job hangs", flush=True)
    time.sleep(1000)
jobs.report = hang
"""

Host = Callable[..., Program]


@pytest.fixture
def start_host(start_python: Callable[..., Program]) -> Host:
    def start_host(change: str = "") -> Program:
        return start_python("apscheduler", "-c", f"{EVERY_SECOND}{change}\njobs.main()")

    return start_host


def test_each_job_runs_on_one_host(start_host: Host, servers: Servers, tmp_path: Path) -> None:
    hosts = [start_host() for _ in range(3)]

    def reports() -> list[str]:
        return [when for host in hosts for when in re.findall("report for (.*)", host.text)]

    for host in hosts:
        host.wait_for("Scheduler started")
    wait_until(lambda: len(reports()) >= 5)
    for host in hosts:
        assert host.terminate() == 0, host.text
    for host in hosts:
        host.kill()  # waits for the rest of its output
        assert "Traceback" not in host.text
    assert len(reports()) == len(set(reports()))
    with closing(sqlite3.connect(tmp_path / "database")) as database:
        rows = database.execute("SELECT period, fence FROM runs ORDER BY period").fetchall()
    assert sorted(reports()) == [period for period, _ in rows]
    fences = [fence for _, fence in rows]
    assert fences == sorted(set(fences))
    # A fifth of a second after the last job.
    wait_until(lambda: not keys(servers))


def test_another_host_takes_over_from_a_killed_one(start_host: Host, servers: Servers) -> None:
    first = start_host(HANG)
    first.wait_for("the job hangs")
    second = start_host()
    second.wait_for("another host is at it")
    assert not is_free(servers, "jobs:report")
    first.kill()
    second.wait_for("report for ")
    assert second.terminate() == 0, second.text
    # A fifth of a second after the last job.
    wait_until(lambda: not keys(servers))


def test_jobs_are_skipped_with_a_warning_during_an_outage(
    start_host: Host, servers: Servers
) -> None:
    servers[0].freeze()
    servers[1].freeze()
    host = start_host()
    host.wait_for("WARNING:jobs:report: ")
    assert "report for" not in host.text
    servers[0].thaw()
    host.wait_for("report for ")
