"""`quorlock run --heartbeat-timeout`: a command that hangs is stopped, and loses the lock."""

from __future__ import annotations

import os
import random
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.installations import every_installation
from command_line import CommandLine, finish, is_alive, line
from nodes import keys, queued, steal
from servers import Servers
from waiting import TIMEOUT, wait_until

TIMES = ["--ttl", "2s", "--heartbeat-timeout", "2s"]
NOTIFY = ["run", *TIMES]
OUTPUT = ["run", *TIMES, "--heartbeat", "output"]
SILENT = "no heartbeat for 2"

BEATS = """
import os, socket, sys, time
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
for _ in range(int(sys.argv[1])):
    manager.sendto(b"STATUS=works\\nWATCHDOG=1", os.environ["NOTIFY_SOCKET"])
    time.sleep(0.1)
"""
"""Sends heartbeats, ten per second, and ends."""

SENDS = """
import os, socket, sys
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
for message in sys.argv[1:]:
    manager.sendto(message.encode(), os.environ["NOTIFY_SOCKET"])
"""

PRINTS = "i=0; while [ $i -lt 60 ]; do echo $i; sleep 0.1; i=$((i + 1)); done"
"""Prints a line ten times per second for six seconds, which are three timeouts."""


def python(script: str, *arguments: str) -> list[str]:
    """Returns the arguments with which `quorlock run` runs a script."""
    return ["--", sys.executable, "-c", script, *arguments]


@pytest.fixture(autouse=True)
def temporary(quorlock: CommandLine) -> Iterator[Path]:
    """The directory for temporary files, in which nothing must be left. The path of a socket has
    about a hundred bytes, so this one is short."""
    with tempfile.TemporaryDirectory(prefix="q", dir="/tmp") as directory:
        quorlock.environment["TMPDIR"] = directory
        yield Path(directory)
        assert list(Path(directory).iterdir()) == []


# Messages


@every_installation
def test_a_command_that_sends_heartbeats_is_not_stopped(
    quorlock: CommandLine, servers: Servers
) -> None:
    process = quorlock.start(*NOTIFY, "r", *python(BEATS, "60"))
    done = finish(process)
    assert (done.returncode, "stopping" in done.stderr) == (0, False), done
    wait_until(lambda: not keys(servers))


@pytest.mark.parametrize("beats", [0, 5])
def test_a_command_without_heartbeats_is_stopped(
    quorlock: CommandLine, servers: Servers, beats: int
) -> None:
    command = python(f"{BEATS}\ntime.sleep(1000)", str(beats))
    done = quorlock.run(*NOTIFY, "r", *command)
    assert done.returncode == 79
    _, stopping, *_, error = done.stderr.splitlines()
    assert stopping.startswith(f"quorlock: {SILENT}.0 s, so the lease of r ends in "), done
    assert SILENT in error, done
    wait_until(lambda: not keys(servers))


@pytest.mark.parametrize("arguments", [NOTIFY, OUTPUT])
def test_a_command_that_hangs_is_gone_before_the_next_one_runs(
    quorlock: CommandLine, servers: Servers, arguments: list[str]
) -> None:
    ignores = "trap '' TERM; echo $$; while :; do sleep 0.05; done"
    # The drift factor makes the safety margin large enough for a busy machine.
    first = quorlock.start(*arguments, "--drift-factor", "0.25", "r", "-c", ignores)
    command = line(first)
    script = f"kill -0 {command} 2>/dev/null && echo both || echo alone"
    second = quorlock.start("run", "--wait", "forever", "r", "-c", script)
    wait_until(lambda: queued(servers) == [1, 1, 1])
    assert finish(second).stdout == "alone\n"
    done = finish(first)
    assert (done.returncode, SILENT in done.stderr) == (79, True), done


def test_the_failure_is_json_if_that_is_requested(quorlock: CommandLine) -> None:
    done = quorlock.run(*NOTIFY, "--json", "r", "--", "sleep", "1000")
    assert done.returncode == 79
    assert '"error":"LEASE_LOST"' in done.stderr
    assert SILENT in done.stderr


def test_an_adopted_lease_needs_heartbeats(quorlock: CommandLine, servers: Servers) -> None:
    inner = [*quorlock.program, *NOTIFY, "--adopt", "--", "sleep", "1000"]
    done = quorlock.run("run", "--detach", "r", "--", *inner)
    assert (done.returncode, SILENT in done.stderr) == (79, True), done
    wait_until(lambda: not keys(servers))


def test_a_trigger_stops_the_command(quorlock: CommandLine, servers: Servers) -> None:
    command = python(f"{SENDS}\nimport time; time.sleep(1000)", "WATCHDOG=trigger")
    done = quorlock.run("run", "--heartbeat-timeout", "1h", "r", *command)
    assert done.returncode == 79
    assert done.stderr.endswith("the command sent WATCHDOG=trigger, so it was stopped\n")
    wait_until(lambda: not keys(servers))


def test_a_command_that_ends_by_itself_keeps_its_status(quorlock: CommandLine) -> None:
    for arguments in (NOTIFY, OUTPUT):
        assert quorlock.run(*arguments, "r", "-c", "exit 3").returncode == 3


SHOWS = """
import os, stat
names = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
print(*(os.environ.get(name) for name in names))
directory = os.path.dirname(os.environ["NOTIFY_SOCKET"])
if os.path.exists(directory):
    print(oct(os.stat(directory).st_mode & 0o777), *os.listdir(directory))
print(*sorted(name for name in os.environ if name.startswith("QUORLOCK")))
"""


def test_the_command_gets_what_the_protocol_needs(quorlock: CommandLine, temporary: Path) -> None:
    outer = {"WATCHDOG_PID": "1", "WATCHDOG_USEC": "5"}
    done = quorlock.run(*NOTIFY, "r", *python(SHOWS), environment=outer)
    variables, directory, names = done.stdout.splitlines()
    address, microseconds, only = variables.split()
    assert Path(address).is_relative_to(temporary)
    assert (microseconds, only) == ("2000000", "None")
    assert directory == "0o700 notify"
    assert "HEARTBEAT" not in names


@pytest.mark.parametrize("options", [[], ["--heartbeat-timeout", "off"], OUTPUT[1:]])
def test_the_variables_are_unchanged_without_a_socket(
    quorlock: CommandLine, options: list[str]
) -> None:
    outer = {"NOTIFY_SOCKET": "/no/socket", "WATCHDOG_PID": "1", "WATCHDOG_USEC": "5"}
    done = quorlock.run("run", *options, "r", *python(SHOWS), environment=outer)
    assert done.stdout.splitlines()[0] == "/no/socket 5 1"


@every_installation
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("arguments", [NOTIFY, OUTPUT])
def test_the_command_gets_no_further_files(quorlock: CommandLine, arguments: list[str]) -> None:
    lists = python("import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))")
    usual = quorlock.run("run", "r", *lists).stdout
    assert quorlock.run(*arguments, "r", *lists).stdout == usual


def wait_for_socket(directory: Path) -> None:
    wait_until(lambda: len(list(directory.glob("*/notify"))) == 1)
    (socket_path,) = directory.glob("*/notify")
    assert stat.S_ISSOCK(socket_path.stat().st_mode)


@every_installation
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_leaves_no_socket(
    quorlock: CommandLine, servers: Servers, temporary: Path, number: int
) -> None:
    arguments = ["run", "--heartbeat-timeout", "1h", "--wait", "forever", "r"]
    runs = quorlock.start(*arguments, "-c", "echo; exec sleep 1000")
    line(runs)
    wait_for_socket(temporary)
    waits = quorlock.start(*arguments, "--", "true")
    wait_until(lambda: queued(servers) == [1, 1, 1])
    for process in (waits, runs):
        process.send_signal(number)
        assert finish(process).returncode == 128 + number


def test_failures_leave_no_socket(quorlock: CommandLine, servers: Servers) -> None:
    assert quorlock.run(*NOTIFY, "r", "--", "/no/such/command").returncode == 127
    process = quorlock.start(*NOTIFY, "--kill-after", "100ms", "r", "-c", "echo; exec sleep 1000")
    line(process)
    steal(servers, "r")
    assert finish(process).returncode == 79
    assert quorlock.run(*NOTIFY, "-n", "r", "--", "true").returncode == 75


def test_a_directory_that_does_not_exist_is_named(quorlock: CommandLine) -> None:
    missing = {"TMPDIR": "/no/such/directory"}
    done = quorlock.run(*NOTIFY, "r", "--", "true", environment=missing)
    assert (done.returncode, done.stdout) == (125, "")
    assert "no socket in /no/such/directory" in done.stderr


@pytest.fixture
def manager(quorlock: CommandLine) -> Iterator[socket.socket]:
    """The socket of a service manager, in the environment of quorlock."""
    with (
        tempfile.TemporaryDirectory(prefix="q", dir="/tmp") as directory,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
    ):
        address = str(Path(directory, "notify"))
        manager.bind(address)
        manager.settimeout(TIMEOUT)
        quorlock.environment["NOTIFY_SOCKET"] = address
        yield manager


def test_messages_are_passed_on_to_the_service_manager(
    quorlock: CommandLine, manager: socket.socket
) -> None:
    sent = ["READY=1\nMAINPID=7\nSTATUS=ünder way", "BARRIER=1", "WATCHDOG=1\n", "STOPPING=1"]
    expected = ["READY=1\nSTATUS=ünder way", "WATCHDOG=1", "STOPPING=1"]
    done = quorlock.run(*NOTIFY, "r", *python(SENDS, *sent))
    assert done.returncode == 0, done
    assert [manager.recv(4096).decode() for _ in expected] == expected


def test_a_service_manager_that_does_not_read_delays_nothing(
    quorlock: CommandLine, servers: Servers, manager: socket.socket
) -> None:
    done = quorlock.run(*NOTIFY, "r", *python(SENDS, *["STATUS=works\nWATCHDOG=1"] * 2000))
    assert done.returncode == 0, done
    wait_until(lambda: not keys(servers))


# Output


def test_a_command_that_prints_is_not_stopped(quorlock: CommandLine, servers: Servers) -> None:
    for redirect in ("", " >&2"):
        done = quorlock.run(*OUTPUT, "-q", "r", "-c", f"({PRINTS}){redirect}")
        assert done.returncode == 0, done
        assert done.stdout + done.stderr == "".join(f"{number}\n" for number in range(60))
    wait_until(lambda: not keys(servers))


def test_a_command_that_stops_printing_is_stopped(quorlock: CommandLine, servers: Servers) -> None:
    done = quorlock.run(*OUTPUT, "r", "-c", "echo one; sleep 0.5; echo two; exec sleep 1000")
    assert (done.returncode, done.stdout) == (79, "one\ntwo\n")
    assert SILENT in done.stderr.splitlines()[-1], done
    wait_until(lambda: not keys(servers))


WRITES = """
import os, random, sys, threading
def write(file, seed, size):
    data = random.Random(seed).randbytes(size)
    while data:
        data = data[os.write(file, data):]
other = threading.Thread(target=write, args=(2, 2, 3_000_001))
other.start()
write(1, 1, 8_000_003)
other.join()
"""
"""Writes several megabytes to stdout and stderr at the same time, without a newline at the end."""


def start_binary(quorlock: CommandLine, *arguments: str, **streams: int) -> subprocess.Popen[bytes]:
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    return subprocess.Popen(
        [*quorlock.program, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=given["stdout"],
        stderr=given["stderr"],
        env=quorlock.environment,
    )


def is_written(data: bytes, seed: int, size: int) -> bool:
    """Returns whether `WRITES` writes these bytes. An assertion would print them."""
    return data == random.Random(seed).randbytes(size)


@every_installation
def test_output_is_passed_on_unchanged(quorlock: CommandLine) -> None:
    process = start_binary(quorlock, *OUTPUT, "-q", "r", *python(WRITES))
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0
    assert is_written(out, 1, 8_000_003)
    assert is_written(err, 2, 3_000_001)


@every_installation
def test_output_passes_through_a_pipe_that_does_not_block(quorlock: CommandLine) -> None:
    """Node.js and others make the pipes non-blocking that they share with their children."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    process = start_binary(quorlock, *OUTPUT, "-q", "r", *python(WRITES), stdout=write)
    os.close(write)
    assert process.stderr
    drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
    with os.fdopen(read, "rb") as reader:
        out = reader.read()
    assert (process.wait(TIMEOUT), drain.wait(TIMEOUT)) == (0, 0)
    process.stderr.close()
    assert is_written(out, 1, 8_000_003)


def test_the_lock_is_released_before_the_output_is_read(
    quorlock: CommandLine, servers: Servers
) -> None:
    script = "head -c 100000 /dev/zero; echo end >&2"
    process = start_binary(quorlock, *OUTPUT, "-q", "r", "-c", script)
    assert process.stderr
    assert process.stderr.readline() == b"end\n"
    wait_until(lambda: not keys(servers))
    assert process.poll() is None
    out, _ = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, out) == (0, bytes(100_000))


def test_a_signal_ends_the_wait_for_the_reader(quorlock: CommandLine, servers: Servers) -> None:
    script = "head -c 100000 /dev/zero; echo end >&2"
    process = start_binary(quorlock, *OUTPUT, "-q", "r", "-c", script)
    assert process.stderr
    assert process.stderr.readline() == b"end\n"
    wait_until(lambda: not keys(servers))
    process.terminate()
    assert process.wait(TIMEOUT) == 0
    process.communicate()


def test_a_command_whose_output_is_not_read_waits_and_is_stopped(
    quorlock: CommandLine, servers: Servers
) -> None:
    process = start_binary(quorlock, *OUTPUT, "r", "--", "yes")
    assert process.stderr
    assert any(SILENT.encode() in text for text in process.stderr)
    wait_until(lambda: not keys(servers))
    out, _ = process.communicate(timeout=TIMEOUT)
    # As much as there is room for on the way.
    assert 0 < len(out) < 1_000_000
    assert process.returncode == 79


@every_installation
def test_a_command_is_told_that_nobody_reads(quorlock: CommandLine, servers: Servers) -> None:
    process = start_binary(quorlock, *OUTPUT, "r", "--", "yes")
    assert process.stdout
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(TIMEOUT) == 128 + signal.SIGPIPE
    process.communicate()
    wait_until(lambda: not keys(servers))


def test_other_processes_do_not_delay_the_end(quorlock: CommandLine, servers: Servers) -> None:
    process = quorlock.start(*OUTPUT, "r", "-c", "sleep 1000 & echo $!; (yes >&2) & echo $!")
    done = finish(process)
    left = [int(pid) for pid in done.stdout.split()]
    try:
        assert done.returncode == 0
        assert len(left) == 2
        # Nobody reads what they write.
        wait_until(lambda: not is_alive(left[1]))
        wait_until(lambda: not keys(servers))
    finally:
        os.kill(left[0], signal.SIGKILL)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
@pytest.mark.parametrize(("command", "status"), [("echo x", 125), ("yes", 141)])
def test_output_that_cannot_be_passed_on_is_an_error(
    quorlock: CommandLine, command: str, status: int
) -> None:
    with Path("/dev/full").open("w") as full:
        process = start_binary(
            quorlock, *OUTPUT, "r", "-c", f"exec {command}", stdout=full.fileno()
        )
        _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == status
    message = b"the output of the command cannot be passed on: No space left on device"
    assert message in err.splitlines()[-1]


# Usage


def test_wrong_options_are_explained(quorlock: CommandLine) -> None:
    def check(expected: str, *options: str, environment: dict[str, str] | None = None) -> None:
        done = quorlock.run("run", *options, "r", "-c", "echo ran", environment=environment)
        assert (done.returncode, done.stdout) == (64, ""), done
        assert expected in done.stderr

    for source in ("output", "notify"):
        check("--heartbeat needs --heartbeat-timeout", "--heartbeat", source)
    range_of_it = "must be a duration from 10 ms to 24 h, or off, not 0.005 s"
    check(f"--heartbeat-timeout {range_of_it}", "--heartbeat-timeout", "5ms")
    variable = "QUORLOCK_HEARTBEAT_TIMEOUT"
    check(f"{variable} {range_of_it}", environment={variable: "5ms"})
    check("'soon' for QUORLOCK_HEARTBEAT_TIMEOUT", environment={variable: "soon"})
    check("possible values: notify, output", *TIMES, "--heartbeat", "pulse")
    check("set them where the lease is adopted", "--detach", *TIMES)
