"""Warnings of a default run: a lease that is dropped, and a call that blocks an event loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from servers import Servers
from waiting import TIMEOUT

import quorlock
from quorlock.testing import Nodes

PACKAGE = Path(__file__).resolve().parents[2] / "bindings-python" / "python"
BEGIN = """\
import asyncio, threading, quorlock
client = quorlock.Client(["memory://a"])
lock = client.lock("orders:42")
"""


def run(program: str, *options: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a program with the default filters of warnings: from a file, or with `-c`."""
    if path is not None:
        path.write_text(program)
    ended = subprocess.run(
        [sys.executable, *options, *(("-c", program) if path is None else (path,))],
        env={"PYTHONPATH": str(PACKAGE)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended


# A dropped lease

IF = """\
if lock.acquire():
    print("body")
"""
DROPS = {
    "acquire": IF,
    "statement": 'lock.acquire()\nprint("body")',
    "try": 'if lock.try_acquire():\n    print("body")',
    "semaphore": 'if client.semaphore("orders:42", limit=2).acquire():\n    print("body")',
    "adopt": 'if client.adopt(lock.acquire().detach()):\n    print("body")',
    "upgrade": """\
shared = client.lock("orders:42", mode="shared").acquire()
if shared.try_upgrade(): print("body")""",
    "asyncio": """\
async def main():
    if await lock.acquire_async():
        print("body")
asyncio.run(main())""",
    "thread": """\
def work():
    if lock.acquire():
        print("body")
thread = threading.Thread(target=work)
thread.start()
thread.join()""",
    "exit handler": """\
import atexit
@atexit.register
def work():
    if lock.acquire():
        print("body")""",
}


@pytest.mark.parametrize("drop", DROPS)
def test_a_default_run_shows_which_line_drops_a_lease(drop: str, tmp_path: Path) -> None:
    program = DROPS[drop]
    path = None if drop == "statement" else tmp_path / "program.py"
    whole = BEGIN + program
    ended = run(whole, path=path)
    lines = whole.splitlines()
    number = next(i for i, line in enumerate(lines, 1) if "acquire" in line and i > 3)
    if "try_upgrade" in program:
        number += 1
    assert ended.stdout == "body\n"
    first = ended.stderr.splitlines()[0]
    place = str(path) if path else "<string>"
    assert first.startswith(f"{place}:{number}: LeaseDroppedWarning: the lease of 'orders:42' ")
    assert "write `with lock:` instead of `if lock.acquire():`" in first


def test_a_loop_that_drops_leases_warns_once_for_each_line() -> None:
    program = BEGIN + "for _ in range(3):\n    client.lock('x', ttl=0.1).acquire()\n"
    assert run(program).stderr.count(": LeaseDroppedWarning: the lease of 'x' was dropped") == 1


def test_filters_apply_to_the_warning() -> None:
    program = BEGIN + IF
    assert run(program, "-W", "ignore::RuntimeWarning").stderr == ""
    # The interpreter cannot raise an exception where an object is collected: it reports it.
    raised = run(program, "-W", "error").stderr
    assert "Exception ignored in" in raised
    assert "LeaseDroppedWarning: the lease of 'orders:42' was dropped" in raised
    filtered = "import warnings, quorlock\n"
    filtered += "warnings.simplefilter('ignore', quorlock.LeaseDroppedWarning)\n"
    assert run(filtered + program).stderr == ""
    assert issubclass(quorlock.LeaseDroppedWarning, RuntimeWarning)


@pytest.mark.parametrize(
    "program",
    [
        "lease = lock.acquire()",
        "with lock: pass",
        "if lease := lock.try_acquire():\n    with lease: pass",
        "lock.acquire().release()",
        "lease = lock.acquire()\ncycle = [lease]\ncycle.append(cycle)",
        "def hold():\n    lease = lock.acquire()\n    yield\nsteps = hold()\nnext(steps)",
        "lock.acquire().detach()",
    ],
)
def test_a_lease_that_is_held_or_released_at_exit_is_not_warned_about(program: str) -> None:
    ended = run(BEGIN + program, "-W", "always")
    assert (ended.stdout, ended.stderr) == ("", "")


def test_a_forgotten_await_is_shown() -> None:
    for call in ("lock.acquire_async()", "lock.try_acquire_async()"):
        ended = run(f"{BEGIN}if {call}:\n    print('body')\n")
        name = call.partition("(")[0].partition(".")[2]
        assert "RuntimeWarning: coroutine '" in ended.stderr
        assert f"{name}' was never awaited" in ended.stderr


# A blocked event loop

BLOCKING: dict[str, tuple[str, str]] = {
    "with lock": ("`with`", "`async with`"),
    "lock.acquire()": ("`acquire()`", "`await acquire_async()`"),
    "lock.acquire(wait=0)": ("`acquire()`", "`await acquire_async()`"),
    "lock.try_acquire()": ("`try_acquire()`", "`await try_acquire_async()`"),
    "lock.locked()": ("`locked()`", "`await locked_async()`"),
    "semaphore.acquire()": ("`acquire()`", "`await acquire_async()`"),
    "semaphore.status()": ("`status()`", "`await status_async()`"),
    "lease.extend()": ("`extend()`", "`await extend_async()`"),
    "lease.release()": ("`release()`", "`await release_async()`"),
    "lease.detach()": ("`detach()`", "`await detach_async()`"),
    "lease.downgrade()": ("`downgrade()`", "`await downgrade_async()`"),
    "lease.hand_over('nobody')": ("`hand_over()`", "`await hand_over_async()`"),
    "lease.wait_lost(0)": ("`wait_lost()`", "`await wait_lost_async()`"),
    "with lease": ("`with`", "`async with`"),
    "shared.try_upgrade()": ("`try_upgrade()`", "`await try_upgrade_async()`"),
    "client.adopt(detached)": ("`adopt()`", "`await adopt_async()`"),
    "client.status('x')": ("`status()`", "`await status_async()`"),
    "client.doctor()": ("`doctor()`", "`await doctor_async()`"),
    "client.force_release('x')": ("`force_release()`", "`await force_release_async()`"),
    "client.elect('leader').run(str)": ("`run()`", "`await run_async()`"),
    "next(watch)": ("`for`", "`async for`"),
    "decorated()": ("A decorated `def`", "`async def`"),
    "client.close()": ("`close()`", "`await aclose()`"),
    "with client": ("`with`", "`async with`"),
}
"""Calls that block, with their form in the warning, and what to use instead."""


@pytest.mark.parametrize("code", BLOCKING)
def test_a_call_that_blocks_an_event_loop_is_warned_about_at_its_line(code: str) -> None:
    with Nodes(1) as nodes:
        nodes.hold("led")
        client = nodes.client(wait=0)
        names: dict[str, Any] = {
            "client": client,
            "lock": client.lock("a"),
            "semaphore": client.semaphore("b", limit=2),
            "lease": client.lock("c").acquire(),
            "shared": client.lock("d", mode="shared").acquire(),
            "detached": client.lock("e").acquire().detach(),
            "watch": client.watch("led"),
            "decorated": client.lock("f")(print),
        }
        statement = f"{code}: pass" if code.startswith("with") else f"kept = {code}"

        async def main() -> None:
            exec(compile(f"\n{statement}", "user.py", "exec"), names)

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            asyncio.run(main())
            client.close()
        blocked = [w for w in caught if w.category is quorlock.EventLoopBlockedWarning]
        # The default filters show one of several that are the same.
        [(filename, line, text)] = {(w.filename, w.lineno, str(w.message)) for w in blocked}
        assert (filename, line) == ("user.py", 2)
        call, instead = BLOCKING[code]
        assert text.startswith(f"{call} blocks the event loop of this thread")
        assert text.endswith(f"use {instead}")


def test_calls_that_block_no_event_loop_are_not_warned_about() -> None:
    with quorlock.Client(["memory://not-blocked"]) as client:
        lock = client.lock("r")

        def work() -> None:
            with lock as lease:
                lease.extend()
            assert not lock.locked()

        async def main() -> None:
            await asyncio.to_thread(work)
            await asyncio.get_running_loop().run_in_executor(None, work)
            async with lock as lease:
                lease.on_lost(lambda: None)
                assert lease.valid
                await lease.extend_async()
            async for leader in client.watch("led"):
                assert leader.holder
                break
            await client.doctor_async()

        with warnings.catch_warnings(), client.lock("led"):
            warnings.simplefilter("error")
            work()
            asyncio.run(main())
            work()


FAULTS = """
import asyncio
from quorlock.testing import Nodes

async def main():
    with Nodes(1) as nodes:
        nodes.freeze()
        nodes.thaw()
        nodes.hold("s")
        nodes.advance(1)

asyncio.run(main())
"""


def test_faults_of_in_memory_nodes_are_not_warned_about() -> None:
    # They have no asyncio form. In a process of its own, because a client that another test has
    # left behind prevents that the clock is moved.
    command = [sys.executable, "-W", "error", "-c", FAULTS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr


def test_a_callback_of_the_loop_and_a_nested_function_are_warned_about() -> None:
    with quorlock.Client(["memory://callback"]) as client:
        lock = client.lock("r")

        def work() -> None:
            lock.acquire().release()

        async def main() -> None:
            asyncio.get_running_loop().call_soon(work)
            await asyncio.sleep(0)
            work()

        with pytest.warns(quorlock.EventLoopBlockedWarning) as caught:
            asyncio.run(main())
        assert {Path(warning.filename) for warning in caught} == {Path(__file__)}


def test_two_tasks_that_block_each_other_hear_at_once_and_learn_the_cause(
    servers: Servers,
) -> None:
    heard: list[float] = []

    def hear(*_: Any, **__: Any) -> None:
        heard.append(time.monotonic())

    async def work(client: quorlock.Client, entered: list[int]) -> None:
        with client.lock("r", wait=1):
            entered.append(1)
            await asyncio.sleep(0)
            await asyncio.sleep(0.01)

    async def main() -> None:
        with quorlock.Client(servers.urls) as client:
            entered: list[int] = []
            tasks = [asyncio.create_task(work(client, entered)) for _ in range(2)]
            done = await asyncio.gather(*tasks, return_exceptions=True)
            [error] = [each for each in done if isinstance(each, BaseException)]
            assert isinstance(error, quorlock.LockTimeoutError)
            assert "is held by another lease of this client" in str(error)
            assert "the wait blocked the event loop of this thread" in str(error)
            assert "`async with`" in str(error)
            assert (error.code, error.resources) == ("TIMEOUT", ("r",))
            assert time.monotonic() - heard[0] >= 0.9  # before the wait, not after it

    with warnings.catch_warnings():
        warnings.simplefilter("always", quorlock.EventLoopBlockedWarning)
        warnings.showwarning = hear
        asyncio.run(main())


def test_a_timeout_outside_of_an_event_loop_says_nothing_about_one() -> None:
    with quorlock.Client(["memory://outside"], wait=0) as client, client.lock("r"):
        for form in (client.lock("r").acquire, lambda: asyncio.run(waits(client))):
            with pytest.raises(quorlock.LockTimeoutError) as caught:
                form()
            assert "event loop" not in str(caught.value)


def test_only_a_timeout_blames_the_blocked_event_loop() -> None:
    with Nodes(3) as nodes:
        client = nodes.client(wait=0, connect_timeout=0.1)

        async def main() -> None:
            with pytest.raises(quorlock.ConfigError) as wrong:
                client.lock("r").acquire(wait=-1)
            nodes.cut()
            with pytest.raises(quorlock.QuorumError) as outage:
                client.lock("r").acquire()
            client.close()
            with pytest.raises(quorlock.ClosedError) as closed:
                client.lock("r").acquire()
            for caught in (wrong, outage, closed):
                assert "event loop" not in str(caught.value)

        with pytest.warns(quorlock.EventLoopBlockedWarning):
            asyncio.run(main())


async def waits(client: quorlock.Client) -> None:
    async with client.lock("r"):
        pass


def test_the_warning_as_an_error_acquires_nothing_and_hides_no_other_error() -> None:
    with quorlock.Client(["memory://error"]) as client:
        lease = client.lock("kept").acquire()

        async def main() -> None:
            for form in (client.lock("r").acquire, client.lock("r").__enter__, lease.__enter__):
                with pytest.raises(quorlock.EventLoopBlockedWarning):
                    form()
            assert not await client.lock("r").locked_async()

        with warnings.catch_warnings():
            warnings.simplefilter("error", quorlock.EventLoopBlockedWarning)
            asyncio.run(main())
        assert lease.valid
        assert lease.release()
        assert client.stats().wins == 1


def test_an_event_loop_in_another_thread_does_not_matter() -> None:
    running, done = threading.Event(), threading.Event()

    async def main() -> None:
        running.set()
        await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert running.wait(TIMEOUT)
        with warnings.catch_warnings(), quorlock.Client(["memory://other-thread"]) as client:
            warnings.simplefilter("error")
            with client.lock("r"):
                pass
    finally:
        done.set()
        thread.join()


def test_programs_without_an_event_loop_do_not_import_asyncio() -> None:
    program = "import sys, quorlock\nwith quorlock.Client(['memory://a']).lock('r'): pass\n"
    run(program + "assert 'asyncio' not in sys.modules")
