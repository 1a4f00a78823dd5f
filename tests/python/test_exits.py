"""Processes that exit while other threads run do not crash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import TIMEOUT

PACKAGE = Path(__file__).resolve().parents[2] / "bindings-python" / "python"
ROUNDS = 8


def interpreters() -> list[str]:
    """Returns this interpreter and the installed interpreters of later Python versions. The native
    module runs in all of them."""
    found = [sys.executable]
    for minor in range(sys.version_info.minor + 1, 15):
        path = shutil.which(f"python3.{minor}")
        # The command may be a launcher whose interpreter is not installed, so try to run it.
        if (
            path
            and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0
        ):
            found.append(path)
    return found


CALLBACK = """
import threading, time, quorlock
client = quorlock.Client(["memory://a"])
called = threading.Event()
def callback(loss):
    called.set()
    while True:
        {work}
lease = client.lock("r", ttl=0.05, auto_extend=False).acquire()
lease.on_lost(callback)
assert called.wait(60)
"""

BLOCKS = """
import threading, time, quorlock
client = quorlock.Client(["memory://a", "memory://b", "memory://c"], wait=None)
shared = client.lock("shared")
def work(number):
    own = client.lock(str(number))
    while True:
        with own:
            pass
        with shared:
            pass
for number in range(8):
    threading.Thread(target=work, args=(number,), daemon=True).start()
time.sleep(0.03)
"""

OBSERVED = """
import contextlib, threading, time, quorlock
client = quorlock.Client(["memory://a"])
@contextlib.contextmanager
def observe(resources):
    time.sleep(0.0003)
    yield lambda lease: None
    sum(range(3000))
client._native.observe(observe)
def work(number):
    while True:
        with client.lock(str(number)) as lease:
            lease.on_lost(print)
        try:
            client.lock("same", wait=0).acquire().release()
        except quorlock.LockTimeoutError:
            pass
for number in range(6):
    threading.Thread(target=work, args=(number,), daemon=True).start()
time.sleep(0.1)
"""

LOGGING = """
import logging, threading, time, quorlock
entered = threading.Event()
class Slow(logging.Handler):
    def emit(self, record):
        entered.set()
        while True:
            time.sleep(0.0005)
    # logging.shutdown() would wait for it.
    def createLock(self):
        self.lock = None
logger = logging.getLogger("quorlock")
logger.addHandler(Slow())
logger.setLevel(logging.DEBUG)
with quorlock.Client(["memory://a"]).lock("r"):
    pass
assert entered.wait(60)
"""

LOOPS = """
import asyncio, threading, time, quorlock
client = quorlock.Client(["memory://a"])
class WatchesNoSockets(asyncio.SelectorEventLoop):
    def add_reader(self, *_):
        raise NotImplementedError
async def main(number):
    while True:
        async with client.lock(str(number)):
            await asyncio.sleep(0)
def work(number):
    factory = WatchesNoSockets if number % 2 else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main(number))
for number in range(6):
    threading.Thread(target=work, args=(number,), daemon=True).start()
time.sleep(0.1)
"""

PROGRAMS = {
    "a callback computes": CALLBACK.format(work="sum(range(1000))"),
    "a callback polls": CALLBACK.format(work="time.sleep(0.0005)"),
    "threads use blocks": BLOCKS,
    "acquires are observed": OBSERVED,
    "a logging handler polls": LOGGING,
    "event loops run": LOOPS,
}


@pytest.mark.parametrize("interpreter", interpreters(), ids=lambda path: Path(path).name)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_a_process_exits_cleanly_while_threads_run(program: str, interpreter: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(PACKAGE)}
    for _ in range(ROUNDS):
        ended = subprocess.run(
            [interpreter, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (0, "")
