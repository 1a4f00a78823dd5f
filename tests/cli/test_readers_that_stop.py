"""`quorlock` with a reader of its output that does not read: a full pipe, or a stopped terminal.

Signals, losses and the end of the command must not wait for such a reader.
"""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cli.installations import every_installation
from command_line import CommandLine, finish, is_alive, line
from nodes import freeze, keys, queued, steal, thaw
from servers import Servers
from waiting import TIMEOUT, wait_until

pytestmark = every_installation

SHELL = ["--", "sh", "-c"]
HANGS = "echo $$; exec sleep 1000"


@pytest.fixture(params=["pipe", "terminal"])
def stuck(request: pytest.FixtureRequest) -> Iterator[Callable[[], int]]:
    """Makes a file descriptor that no more can be written to, in one of two ways."""
    files: list[int] = []

    def make() -> int:
        own, given = os.pipe() if request.param == "pipe" else pty.openpty()
        files.extend((own, given))
        if request.param == "terminal":
            termios.tcflow(given, termios.TCOOFF)
        else:
            fill(given)
        return given

    yield make
    for file in files:
        os.close(file)


def fill(pipe: int) -> None:
    os.set_blocking(pipe, False)
    with suppress(BlockingIOError):
        while os.write(pipe, b"x" * 4096):
            pass
    os.set_blocking(pipe, True)


def start(quorlock: CommandLine, *arguments: str, **streams: int) -> subprocess.Popen[str]:
    given = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | streams
    return subprocess.Popen(
        [*quorlock.program, *arguments],
        env=quorlock.environment,
        text=True,
        stdin=given["stdin"],
        stdout=given["stdout"],
        stderr=given["stderr"],
    )


def test_a_command_that_loses_its_lease_is_stopped(
    quorlock: CommandLine, servers: Servers, stuck: Callable[[], int]
) -> None:
    arguments = ["run", "--ttl", "2s", "--kill-after", "100ms", "r", *SHELL, HANGS]
    process = start(quorlock, *arguments, stderr=stuck())
    command = int(line(process))
    steal(servers, "r")
    wait_until(lambda: not is_alive(command))
    assert process.wait(TIMEOUT) == 79


def test_a_command_is_stopped_before_its_lease_ends(
    quorlock: CommandLine, servers: Servers, stuck: Callable[[], int]
) -> None:
    arguments = ["run", "--ttl", "2s", "--connect-timeout", "200ms", "r", *SHELL, HANGS]
    process = start(quorlock, *arguments, stderr=stuck())
    command = int(line(process))
    freeze(servers)
    wait_until(lambda: not is_alive(command))
    assert process.wait(TIMEOUT) == 79
    thaw(servers)


def test_signals_are_passed_on_and_end_the_wait(
    quorlock: CommandLine, servers: Servers, stuck: Callable[[], int]
) -> None:
    full = stuck()
    runs = start(quorlock, "run", "r", *SHELL, HANGS, stderr=full)
    line(runs)
    waits = start(quorlock, "run", "--wait", "forever", "r", "--", "true", stderr=full)
    wait_until(lambda: queued(servers) == [1, 1, 1])
    waits.send_signal(signal.SIGTERM)
    assert waits.wait(TIMEOUT) == 128 + signal.SIGTERM
    runs.send_signal(signal.SIGTERM)
    assert runs.wait(TIMEOUT) == 128 + signal.SIGTERM
    wait_until(lambda: not keys(servers))


def test_failures_are_reported_without_waiting(
    quorlock: CommandLine, servers: Servers, stuck: Callable[[], int]
) -> None:
    steal(servers, "r")
    process = start(quorlock, "run", "-n", "r", "--", "true", stderr=stuck())
    assert process.wait(TIMEOUT) == 75


@pytest.mark.parametrize("command", ["acquire", "watch"])
def test_a_result_that_cannot_be_printed_does_not_hold_up_signals(
    quorlock: CommandLine, servers: Servers, stuck: Callable[[], int], command: str
) -> None:
    steal(servers, "other")
    resource = "r" if command == "acquire" else "other"
    process = start(quorlock, command, resource, stdout=stuck())
    wait_until(lambda: process.poll() is not None or len(threads(process)) > 0)
    if command == "acquire":
        wait_until(lambda: keys(servers).count("r") == 3)
    process.send_signal(signal.SIGTERM)
    assert finish(process).returncode == 128 + signal.SIGTERM
    wait_until(lambda: "r" not in keys(servers))


def threads(process: subprocess.Popen[str]) -> list[str]:
    """Returns the names of the threads that print."""
    names = []
    with suppress(OSError):
        for thread in Path(f"/proc/{process.pid}/task").iterdir():
            with suppress(OSError):
                names.append((thread / "comm").read_text().strip())
    return [name for name in names if name == "quorlock-aside"]
