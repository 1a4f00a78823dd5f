"""gevent and eventlet, where greenlets replace threads: no call may block the hub."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from nodes import keys, steal
from servers import Servers
from unix_http import UnixConnection, is_listening
from waiting import TIMEOUT, wait_until

PROGRAMS = Path(__file__).resolve().parent / "programs"


@pytest.fixture
def environment(servers: Servers) -> dict[str, str]:
    return os.environ | {"QUORLOCK_NODES": ",".join(servers.urls)}


@pytest.mark.parametrize("library", ["gevent", "eventlet"])
def test_greenlets_wait_without_blocking_the_hub(
    servers: Servers, environment: dict[str, str], library: str
) -> None:
    program = subprocess.Popen(
        [sys.executable, "-W", "ignore", PROGRAMS / "greenlets.py", library],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert program.stdout
        assert program.stdout.readline() == "ready to be stolen\n"
        steal(servers, "stolen")
        assert program.communicate(timeout=TIMEOUT)[0] == "done\n"
        assert program.returncode == 0
    finally:
        program.kill()
    for server in servers:
        server.command("DEL", "stolen")
    wait_until(lambda: not keys(servers))


def test_gunicorn_with_gevent_serves_requests_while_others_wait(
    servers: Servers, environment: dict[str, str], tmp_path: Path
) -> None:
    address = tmp_path / "socket"
    options = ["--preload", "-k", "gevent", "--bind", f"unix:{address}", "--log-level", "warning"]
    gunicorn = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", *options, "greenlet_web:application"],
        env=environment,
        cwd=PROGRAMS,
    )
    try:
        wait_until(lambda: is_listening(address))

        def ask(path: str) -> str:
            connection = UnixConnection(address)
            connection.request("GET", path)
            return connection.getresponse().read().decode()

        assert ask("/hold") == "held"
        with ThreadPoolExecutor(30) as pool:
            # Start more waiters than the hub's thread pool has threads.
            waiting = [pool.submit(ask, "/wait") for _ in range(25)]
            wait_until(lambda: ask("/waiting") == "25")
            # The only worker still answers, so the holder can release.
            assert ask("/release") == "released"
            assert {answer.result(TIMEOUT) for answer in waiting} == {"held"}
        gunicorn.send_signal(signal.SIGTERM)
        assert gunicorn.wait(TIMEOUT) == 0
    finally:
        gunicorn.kill()
    wait_until(lambda: not keys(servers))


def test_celery_with_gevent_runs_jobs_one_at_a_time(
    servers: Servers, environment: dict[str, str], tmp_path: Path
) -> None:
    environment |= {"QUEUE": str(tmp_path), "HOLD": ""}
    (tmp_path / "counter").write_text("0")
    (tmp_path / "workers").mkdir()
    options = ["--pool", "gevent", "--concurrency", "20", "--without-mingle", "--without-gossip"]
    celery = subprocess.Popen(
        [sys.executable, "-m", "celery", "--app", "jobs", "worker", "-l", "ERROR", *options],
        env=environment,
        cwd=PROGRAMS,
        stdout=subprocess.DEVNULL,
    )
    try:
        program = "import jobs; [jobs.count.delay() for _ in range(40)]"
        subprocess.run(
            [sys.executable, "-c", program],
            env=environment | {"PYTHONPATH": str(PROGRAMS)},
            timeout=TIMEOUT,
            check=True,
        )
        wait_until(lambda: (tmp_path / "counter").read_text() == "40")
        celery.send_signal(signal.SIGTERM)
        assert celery.wait(TIMEOUT) == 0
    finally:
        celery.kill()
    wait_until(lambda: not keys(servers))
