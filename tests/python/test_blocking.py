"""Threads that block: signals still reach the main thread, and the other threads sleep."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from nodes import keys, queued
from servers import Servers
from waiting import TIMEOUT, wait_until

import quorlock

THREADS = 20
LONG = 600.0
"""A time, in seconds, longer than any test."""


@pytest.fixture
def client(servers: Servers) -> Iterator[quorlock.Client]:
    with quorlock.Client(servers.urls, ttl=LONG) as client:
        yield client


@contextmanager
def started(program: str, servers: Servers) -> Iterator[subprocess.Popen[str]]:
    """Starts a program and waits until it writes "waiting" and has joined the queue of `r`."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *servers.urls], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout
        assert process.stdout.readline() == "waiting\n"
        wait_until(lambda: queued(servers) == [1] * 3)
        yield process
    finally:
        process.kill()
        process.communicate()


def interrupt(process: subprocess.Popen[str]) -> str:
    """Sends SIGINT and returns what the program writes before it exits."""
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=TIMEOUT)[0]
    assert process.returncode == 0
    return output


BLOCKED = f"""
import queue, signal, sys, threading, quorlock
client = quorlock.Client(sys.argv[1:], wait=None)
closed = queue.SimpleQueue()
def block():
    try:
        client.lock("r").acquire()
    except quorlock.ClosedError:
        closed.put(1)
threads = [threading.Thread(target=block) for _ in range({THREADS})]
for thread in threads:
    thread.start()
"""

# Does not join all threads: before Python 3.13, an interrupted `join` marks its thread as ended.
JOINS = """
try:
    print("waiting", flush=True)
    threads[0].join()
except KeyboardInterrupt:
    client.close()
    print("interrupted", sum(closed.get() for _ in threads))
"""


def test_ctrl_c_interrupts_a_main_thread_that_joins_blocked_threads(
    servers: Servers, client: quorlock.Client
) -> None:
    with client.lock("r"), started(BLOCKED + JOINS, servers) as process:
        assert interrupt(process) == f"interrupted {THREADS}\n"
    wait_until(lambda: not keys(servers))


HANDLES = """
def handle(*_):
    print("handled by", threading.current_thread().name, flush=True)
signal.signal(signal.SIGUSR1, handle)
try:
    print("waiting", flush=True)
    client.lock("r").acquire()
except KeyboardInterrupt:
    client.close()
    print("interrupted")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGUSR1")
def test_signal_handlers_run_in_the_main_thread_while_all_threads_are_blocked(
    servers: Servers, client: quorlock.Client
) -> None:
    with client.lock("r"), started(BLOCKED + HANDLES, servers) as process:
        assert process.stdout
        for _ in range(3):
            process.send_signal(signal.SIGUSR1)
            assert process.stdout.readline() == "handled by MainThread\n"
        assert interrupt(process) == "interrupted\n"


# Before Python 3.13, `threading.main_thread()` returns the other thread here.
IMPORTED_ELSEWHERE = """
import _thread, sys, time
assert "threading" not in sys.modules
_thread.start_new_thread(lambda: __import__("threading"), ())
while not hasattr(sys.modules.get("threading"), "main_thread"):
    time.sleep(0.001)
import quorlock
client = quorlock.Client(sys.argv[1:], wait=None)
try:
    print("waiting", flush=True)
    client.lock("r").acquire()
except KeyboardInterrupt:
    client.close()
    print("interrupted")
"""


def test_ctrl_c_reaches_a_main_thread_that_did_not_import_threading(
    servers: Servers, client: quorlock.Client
) -> None:
    with client.lock("r"), started(IMPORTED_ELSEWHERE, servers) as process:
        assert interrupt(process) == "interrupted\n"


FORKS = """
import os, sys, threading, quorlock
client = quorlock.Client(sys.argv[1:], wait=None)
with client.lock("other") as lease:
    def work():
        # This thread is not the main one, but becomes the main one of the child.
        assert not lease.wait_lost(0.2)
        pid = os.fork()
        if pid:
            assert os.waitpid(pid, 0)[1] == 0
            return
        try:
            print(os.getpid(), flush=True)
            client.lock("r").acquire()
        except KeyboardInterrupt:
            client.close()
            print("interrupted", flush=True)
            os._exit(0)
        os._exit(1)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_ctrl_c_reaches_a_forked_child_of_another_thread(
    servers: Servers, client: quorlock.Client
) -> None:
    with client.lock("r"):
        process = subprocess.Popen(
            [sys.executable, "-c", FORKS, *servers.urls], stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout
            child = int(process.stdout.readline())
            wait_until(lambda: queued(servers) == [1] * 3)
            os.kill(child, signal.SIGINT)
            assert process.communicate(timeout=TIMEOUT)[0] == "interrupted\n"
            assert process.returncode == 0
        finally:
            process.kill()
            process.communicate()


def test_threads_that_wait_for_a_loss_end_with_their_timeout_or_the_loss(
    client: quorlock.Client,
) -> None:
    with ThreadPoolExecutor(2 * THREADS) as pool:
        lease = client.lock("r", ttl=5, auto_extend=False).acquire()
        short = [pool.submit(lease.wait_lost, 0.3) for _ in range(THREADS)]
        long = [pool.submit(lease.wait_lost, LONG) for _ in range(THREADS)]
        assert not any(waiting.result(TIMEOUT) for waiting in short)
        assert all(waiting.result(TIMEOUT) for waiting in long)


def switches(thread: int) -> int:
    """Returns how often a thread of this process has gone to sleep."""
    status = Path(f"/proc/self/task/{thread}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_blocked_threads_sleep_while_one_of_them_drives(
    servers: Servers, client: quorlock.Client
) -> None:
    with quorlock.Client(servers.urls, wait=None) as waiter:

        def block() -> None:
            waiter.lock("r").acquire().release()

        def awake() -> int:
            """Returns the number of threads that wake up within a second."""
            before = [switches(thread.native_id or 0) for thread in threads]
            time.sleep(1)
            after = [switches(thread.native_id or 0) for thread in threads]
            return sum(then > now for now, then in zip(before, after, strict=True))

        threads = [threading.Thread(target=block) for _ in range(THREADS)]
        with client.lock("r"):
            for thread in threads:
                thread.start()
            # One thread drives at a time, for a quarter of a second, so few of them wake up.
            wait_until(lambda: awake() <= THREADS // 4)
        for thread in threads:
            thread.join(TIMEOUT)
            assert not thread.is_alive()
