"""Forks, worker processes, and the end of a process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from nodes import freeze, keys, thaw
from servers import Servers
from unix_http import UnixConnection, is_listening
from waiting import TIMEOUT, wait_until

PROGRAMS = Path(__file__).resolve().parent / "programs"


@pytest.fixture
def environment(servers: Servers) -> dict[str, str]:
    return os.environ | {"QUORLOCK_NODES": ",".join(servers.urls)}


def run(program: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def test_clients_survive_a_fork_and_leases_do_not(
    servers: Servers, environment: dict[str, str]
) -> None:
    forks = subprocess.run(
        [sys.executable, PROGRAMS / "forks.py"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=4 * TIMEOUT,
        check=True,
    )
    assert forks.stdout == "20\n"
    wait_until(lambda: not keys(servers))


def test_gunicorn_with_preload_excludes_between_workers(
    servers: Servers, environment: dict[str, str], tmp_path: Path
) -> None:
    counter, address = tmp_path / "counter", tmp_path / "socket"
    counter.write_text("0")
    options = ["--preload", "--workers", "3", "--bind", f"unix:{address}", "--log-level", "warning"]
    gunicorn = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", *options, "web:application"],
        env=environment | {"COUNTER": str(counter)},
        cwd=PROGRAMS,
    )
    try:
        wait_until(lambda: is_listening(address))

        def ask(_: int) -> str:
            connection = UnixConnection(address)
            connection.request("GET", "/")
            response = connection.getresponse()
            assert response.status == 200
            return response.read().decode()

        with ThreadPoolExecutor(6) as pool:
            workers = list(pool.map(ask, range(60)))
        assert counter.read_text() == "60"
        assert len(set(workers)) > 1
        assert str(gunicorn.pid) not in workers
        assert "master" in keys(servers)
        gunicorn.send_signal(signal.SIGTERM)
        assert gunicorn.wait(TIMEOUT) == 0
    finally:
        gunicorn.kill()
    wait_until(lambda: not keys(servers))


def test_celery_with_prefork_excludes_between_workers(
    servers: Servers, environment: dict[str, str], tmp_path: Path
) -> None:
    environment |= {"QUEUE": str(tmp_path), "HOLD": "yes"}
    (tmp_path / "counter").write_text("0")
    (tmp_path / "workers").mkdir()
    options = ["--pool", "prefork", "--concurrency", "3", "--without-mingle", "--without-gossip"]
    celery = subprocess.Popen(
        [sys.executable, "-m", "celery", "--app", "jobs", "worker", "-l", "ERROR", *options],
        env=environment,
        cwd=PROGRAMS,
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: "parent" in keys(servers))
        program = "import jobs; [jobs.count.delay() for _ in range(30)]"
        sender = environment | {"PYTHONPATH": str(PROGRAMS), "HOLD": ""}
        sent = run(program, sender)
        assert sent.returncode == 0, sent.stderr
        wait_until(lambda: (tmp_path / "counter").read_text() == "30")
        assert len(list((tmp_path / "workers").iterdir())) > 1
        assert "parent" in keys(servers)
        celery.send_signal(signal.SIGTERM)
        assert celery.wait(TIMEOUT) == 0
    finally:
        celery.kill()
    wait_until(lambda: not keys(servers))


def test_importing_and_creating_a_client_starts_no_thread() -> None:
    if not Path("/proc/self/task").is_dir():
        pytest.skip("the system does not show threads in /proc")
    program = """
import os, quorlock
client = quorlock.Client(["memory://a"])
lock = client.lock("r")
print(len(os.listdir("/proc/self/task")))
"""
    assert run(program, dict(os.environ)).stdout == "1\n"


BUSY = """
import asyncio, sys, threading, time, quorlock

client = quorlock.Client(ttl=600, wait=None)
held = [client.lock(f"held-{i}").acquire() for i in range(5)]
held[0].on_lost(print)

def wait():
    client.lock("held-0").acquire()

def wait_for_loss():
    held[1].wait_lost()

def hammer():
    while True:
        with client.lock("hammer"):
            pass

async def wait_async():
    await client.lock("held-0").acquire_async()

def wait_in_loop():
    asyncio.run(wait_async())

for work in (wait, wait, wait_for_loss, wait_in_loop, hammer, hammer):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.05)
print("leaving", flush=True)
"""


def test_a_process_exits_with_held_leases_and_running_threads(
    servers: Servers, environment: dict[str, str]
) -> None:
    for _ in range(10):
        ended = run(BUSY, environment)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "leaving\n", "")
        # At exit, held leases are released and no waiting thread acquires them. On a loaded machine
        # the exit may give up before all waiters have left the queues; these expire after 5 s.
        wait_until(lambda: keys(servers) == [])


def test_a_process_exits_when_no_node_answers(
    servers: Servers, environment: dict[str, str]
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY.replace("time.sleep(0.05)", "sys.stdin.readline()")],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: "held-4" in keys(servers))
        assert process.stdin
        assert process.stdout
        freeze(servers)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "leaving\n"
        began = time.monotonic()
        assert process.communicate(timeout=TIMEOUT)[1] == ""
        # 0.5 s on an idle machine; the limit allows for a heavily loaded one.
        assert time.monotonic() - began < 10
        assert process.returncode == 0
    finally:
        process.kill()
        thaw(servers)


LOSSES = """
import time
import quorlock

client = quorlock.Client(["memory://losses"])
leases = [client.lock(str(number)).acquire() for number in range(200)]
for lease in leases:
    lease.on_lost(lambda loss: time.sleep(0.0005))
client.close()
"""


def test_a_process_exits_while_on_lost_callbacks_run(environment: dict[str, str]) -> None:
    # A thread that waited for the GIL in native code during the exit would crash the process.
    for _ in range(20):
        ended = run(LOSSES, environment)
        assert (ended.returncode, ended.stderr) == (0, "")


def test_the_finalizer_of_a_replaced_observer_can_use_the_client(
    environment: dict[str, str],
) -> None:
    program = """
import quorlock
client = quorlock.Client(["memory://a"])

class Observer:
    def __call__(self, resources):
        raise AssertionError("it was replaced")
    def __del__(self):
        client.lock("r").acquire().release()
        print("collected")

client._native.observe(Observer())
client._native.observe(None)
"""
    ended = run(program, environment)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "collected\n", "")


def test_on_lost_raises_if_its_thread_cannot_be_started(
    environment: dict[str, str],
) -> None:
    program = """
import threading, quorlock
lease = quorlock.Client(["memory://a"]).lock("r", ttl=0.05, auto_extend=False).acquire()
start, called = threading.Thread.start, threading.Event()

def fail(self):
    raise RuntimeError("can't start new thread")

threading.Thread.start = fail
try:
    lease.on_lost(called.set)
except RuntimeError as error:
    print(error)
threading.Thread.start = start
lease.on_lost(called.set)
assert called.wait(60)
"""
    ended = run(program, environment)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "can't start new thread\n", "")


def test_sigterm_ends_a_process(servers: Servers, environment: dict[str, str]) -> None:
    program = BUSY + "client.lock('held-0').acquire()"
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.readline() == "leaving\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(TIMEOUT) == -signal.SIGTERM


def test_a_failing_script_releases_its_leases(
    servers: Servers, environment: dict[str, str]
) -> None:
    program = "import quorlock; lease = quorlock.Client(ttl=600).lock('r').acquire(); 1 / 0"
    ended = run(program, environment)
    assert ended.returncode == 1
    assert "ZeroDivisionError" in ended.stderr
    assert not keys(servers)


def test_a_lease_survives_the_end_of_its_event_loop(
    servers: Servers, environment: dict[str, str]
) -> None:
    program = """
import asyncio, quorlock
client = quorlock.Client(ttl=2)

async def main():
    global lease
    lease = await client.lock("r").acquire_async()
    lease.on_lost(print)
    waiting = asyncio.create_task(client.lock("r", wait=None).acquire_async())
    await asyncio.sleep(0.01)

asyncio.run(main())
assert not lease.wait_lost(2.5) and lease.valid
print("left the loop")
"""
    ended = run(program, environment)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "left the loop\n", "")
    assert not keys(servers)


def test_importing_in_a_subinterpreter_raises(environment: dict[str, str]) -> None:
    program = """
try:
    import _interpreters as interpreters  # Python 3.13
except ImportError:
    import _xxsubinterpreters as interpreters
import quorlock
other = interpreters.create()
interpreters.run_string(other, "try: import quorlock\\nexcept ImportError as error: print(error)")
interpreters.destroy(other)
with quorlock.Client().lock("r"):
    print("main interpreter works")
"""
    ended = run(program, environment)
    first, second = ended.stdout.splitlines()
    # From Python 3.12 on, the error comes from Python itself.
    assert re.search(r"quorlock.* does not support .*subinterpreters", first)
    assert second == "main interpreter works"
