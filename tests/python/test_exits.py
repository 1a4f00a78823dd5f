"""Processes that exit: threads that still run do not crash them, and locks work until the end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import keys
from servers import Servers
from waiting import TIMEOUT, wait_until

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
import contextlib, logging, threading, time, quorlock
entered = threading.Event()
class Free(contextlib.nullcontext):
    acquire = release = lambda self: None
class Slow(logging.Handler):
    def emit(self, record):
        entered.set()
        while True:
            time.sleep(0.0005)
    # logging.shutdown() would wait for the lock.
    def createLock(self):
        self.lock = Free()
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


# Work at exit. Each program prints what its last code could do, and leaves no key on the nodes.

WORK = """
import atexit, os, sys, threading, weakref
{imports}
def work():
    # What a program may do at exit: end the lease that it holds, and hold another one.
    kept = lease.valid, lease.release()
    with client.lock("b", "c") as other:
        other.extend(5)
        held = other.valid, client.lock("b").locked()
    print("released", *kept, "held", *held, flush=True)
{before}
import quorlock
client = quorlock.Client(sys.argv[1:], wait=30, ttl=600)  # longer than the test
lease = client.lock("a").acquire()
{after}
"""

THREAD = """
def on_thread():
    stop.wait()
    work()
stop = threading.Event()
thread = threading.Thread(target=on_thread, daemon=True)
thread.start()
"""

WORKS = {
    "an exit handler from before the import": {"before": "atexit.register(work)"},
    "an exit handler from after the import": {"after": "atexit.register(work)"},
    "a finalizer from before the import": {
        "before": "class A: pass\na = A()\nweakref.finalize(a, work)"
    },
    "a finalizer from after the import": {
        "after": "class A: pass\na = A()\nweakref.finalize(a, work)"
    },
    "a thread that an earlier exit handler joins": {
        "before": "atexit.register(lambda: (stop.set(), thread.join()))",
        "after": THREAD,
    },
    "a thread that is no daemon": {
        "after": THREAD.replace("daemon=True", "daemon=False")
        + "threading._register_atexit(stop.set)"
    },
    "a pool of threads": {
        "imports": "from concurrent.futures import ThreadPoolExecutor",
        "after": "ThreadPoolExecutor().submit(work)",
    },
    "an event loop in an exit handler": {
        "imports": "import asyncio",
        "before": """
async def main():
    print("released", lease.valid, await lease.release_async(), end=" ")
    async with client.lock("b") as other:
        print("held", other.valid, await client.lock("b").locked_async())
atexit.register(lambda: asyncio.run(main()))
""",
    },
    "a global variable": {
        "before": "class A:\n    def __del__(self): work()",
        "after": "a = A()",
    },
    "a cycle": {
        "before": "class A:\n    def __del__(self): work()",
        "after": "a = A()\na.self = a",
    },
    "an object that another module keeps": {
        "imports": "import types",
        "before": "class A:\n    def __del__(self): work()",
        "after": "sys.modules['kept'] = types.ModuleType('kept')\nsys.modules['kept'].a = A()",
    },
    "an object that the interpreter keeps to the last": {
        "imports": "import builtins, sys",
        "before": "class A:\n    def __del__(self): work()",
        "after": "builtins.a = A()",
    },
    "a finalizer with logging": {
        "imports": "import logging\nlogging.basicConfig(level='ERROR')",
        "before": "class A:\n    def __del__(self): work()",
        "after": "a = A()",
    },
    "an exception hook": {
        "after": "sys.excepthook = lambda *_: (work(), sys.stdout.flush(), os._exit(0))\n1 / 0"
    },
    "a signal handler that exits": {
        "imports": "import signal",
        "before": "atexit.register(work)",
        "after": "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "os.kill(os.getpid(), signal.SIGTERM)\nthreading.Event().wait()",
    },
    "exit handlers that the program runs": {
        "before": "atexit.register(work)",
        "after": "atexit._run_exitfuncs()\nos._exit(0)",
    },
}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Servers]:
    with Servers(3) as servers:
        yield servers


def run(
    program: str, nodes: Servers, interpreter: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        # Later versions warn about a fork while threads run.
        [interpreter, "-W", "ignore::DeprecationWarning", "-c", program, *nodes.urls],
        env=os.environ | {"PYTHONPATH": str(PACKAGE)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


@pytest.mark.parametrize("interpreter", interpreters(), ids=lambda path: Path(path).name)
@pytest.mark.parametrize("parts", WORKS.values(), ids=WORKS.keys())
def test_locks_work_until_the_end_of_a_process(
    parts: dict[str, str], interpreter: str, nodes: Servers
) -> None:
    program = WORK.format(**{"imports": "", "before": "", "after": ""} | parts)
    ended = run(program, nodes, interpreter)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "released True True held True True\n"
    wait_until(lambda: not keys(nodes))


HELD = {
    "at exit": "",
    "in a cycle": "a = [lease]\na.append(a)\ndel lease",
    "in a block of a daemon thread": """
held = threading.Event()
def hold():
    with client.lock("d"):
        held.set()
        threading.Event().wait()
threading.Thread(target=hold, daemon=True).start()
held.wait()
""",
    "in a block of a generator": """
def hold():
    with client.lock("d"):
        yield
steps = hold()
next(steps)
""",
    "acquired by a finalizer": """
class A:
    def __del__(self): self.lease = client.lock("d").acquire()
a = A()
""",
    "acquired by an earlier exit handler": "",
    "when the program runs its exit handlers": "atexit._run_exitfuncs()\nos._exit(0)",
    "in a forked child": """
if os.fork() == 0:
    kept = client.lock("d").acquire()
    sys.exit()
assert os.wait()[1] == 0 and lease.valid
""",
}


@pytest.mark.parametrize("interpreter", interpreters(), ids=lambda path: Path(path).name)
@pytest.mark.parametrize("name", HELD)
def test_a_lease_that_is_held_at_the_end_is_released(
    name: str, interpreter: str, nodes: Servers
) -> None:
    before = "atexit.register(lambda: globals().update(more=client.lock('e').acquire()))"
    parts = {"imports": "", "before": before if "earlier" in name else "", "after": HELD[name]}
    ended = run(WORK.format(**parts), nodes, interpreter)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    wait_until(lambda: not keys(nodes))


def test_exit_handlers_can_wait_while_daemon_threads_use_locks(nodes: Servers) -> None:
    """The threads are kept out only when all exit handlers have run, so none hangs before."""
    after = """
def hold(number):
    while True:
        with client.lock(f"d{number}"):
            counts[number] += 1
counts = [0] * 4
for number in range(4):
    threading.Thread(target=hold, args=(number,), daemon=True).start()
"""
    before = """
def wait():
    seen = list(counts)
    while any(count <= was + 3 for count, was in zip(counts, seen)):
        pass
    work()
atexit.register(wait)
"""
    for _ in range(3):
        ended = run(WORK.format(imports="", before=before, after=after), nodes)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert ended.stdout == "released True True held True True\n"
        wait_until(lambda: not keys(nodes))
