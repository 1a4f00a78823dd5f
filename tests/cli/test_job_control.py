"""`quorlock run` as other programs start and control it: timeout(1), service managers, shells."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from cli.installations import every_installation
from command_line import CommandLine, finish, line, state
from nodes import keys, queued, steal
from servers import Servers
from waiting import TIMEOUT, wait_until

pytestmark = [every_installation, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

SHELL = ["--", "sh", "-c"]
SLEEPS = "echo $$; exec sleep 1000"
# Starts no process after it has written its number: a shell that is stopped within a vfork has
# another state.
RESUMES = "trap 'echo resumed' CONT; sleep 1000 & echo $$; while :; do wait; done"


def start(
    quorlock: CommandLine, *arguments: str, before: Callable[[], object]
) -> subprocess.Popen[str]:
    """Starts the command in a process in which `before` was called."""
    return subprocess.Popen(
        [*quorlock.program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=quorlock.environment,
        text=True,
        preexec_fn=before,
    )


def block(signals: Iterable[int]) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stopped_command_is_ended_by_a_signal(
    quorlock: CommandLine, servers: Servers, number: signal.Signals
) -> None:
    process = quorlock.start("run", "r", *SHELL, SLEEPS)
    command = int(line(process))
    os.kill(command, signal.SIGSTOP)
    wait_until(lambda: state(command) == "T")
    process.send_signal(number)
    assert finish(process).returncode == 128 + number
    wait_until(lambda: not keys(servers))


@pytest.mark.parametrize("stops", ["the command", "quorlock"])
def test_a_stopped_command_keeps_the_lock_until_it_is_resumed(
    quorlock: CommandLine, servers: Servers, stops: str
) -> None:
    process = quorlock.start("run", "--ttl", "1s", "r", *SHELL, RESUMES)
    command = int(line(process))
    if stops == "quorlock":
        process.send_signal(signal.SIGTSTP)
    else:
        os.kill(command, signal.SIGSTOP)
    wait_until(lambda: state(command) == "T")
    expiry = servers[0].command("PEXPIRETIME", "r")
    wait_until(lambda: servers[0].command("PEXPIRETIME", "r") != expiry)
    process.send_signal(signal.SIGCONT)
    assert line(process) == "resumed"
    process.send_signal(signal.SIGTERM)
    assert finish(process).returncode == 128 + signal.SIGTERM


def test_a_wait_that_no_shell_can_resume_is_not_stopped(
    quorlock: CommandLine, servers: Servers
) -> None:
    steal(servers, "r")
    arguments = ["run", "--wait", "forever", "r", "--", "true"]
    process = start(quorlock, *arguments, before=os.setsid)
    wait_until(lambda: queued(servers) == [1, 1, 1])
    process.send_signal(signal.SIGTSTP)
    for server in servers:
        server.command("DEL", "r")
    assert finish(process).returncode == 0


def test_the_end_of_the_command_is_noticed_if_all_signals_are_blocked(
    quorlock: CommandLine, servers: Servers
) -> None:
    arguments = ["run", "--ttl", "24h", "r", *SHELL, "sleep 0.1; exit 3"]
    process = start(quorlock, *arguments, before=lambda: block(signal.valid_signals()))
    assert finish(process).returncode == 3


def test_a_command_whose_end_is_ignored_by_the_parent_has_its_status(
    quorlock: CommandLine, servers: Servers
) -> None:
    ignore = lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # noqa: E731
    process = start(quorlock, "run", "r", *SHELL, "exit 3", before=ignore)
    assert finish(process).returncode == 3


def test_output_beyond_the_permitted_size_of_a_file_is_an_error(
    quorlock: CommandLine, servers: Servers, tmp_path: Path
) -> None:
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # noqa: E731
    times = ["--ttl", "10m", "--heartbeat-timeout", "10m", "--heartbeat", "output"]
    with (tmp_path / "log").open("w") as log:
        done = subprocess.run(
            [*quorlock.program, "run", *times, "r", *SHELL, "head -c 100000 /dev/zero; sleep 1"],
            stdout=log,
            stderr=subprocess.PIPE,
            env=quorlock.environment,
            text=True,
            check=False,
            preexec_fn=limit,
        )
    assert "the output of the command cannot be passed on" in done.stderr
    assert keys(servers) == []


@pytest.mark.parametrize("way", ["blocked", "ignored"])
def test_sigterm_ends_the_command_if_it_was_blocked_or_ignored(
    quorlock: CommandLine, servers: Servers, way: str
) -> None:
    """The command inherits that, and so does not receive it. It is killed."""

    def withhold() -> None:
        if way == "blocked":
            block([signal.SIGTERM])
        else:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    process = start(quorlock, "run", "--ttl", "2s", "r", *SHELL, SLEEPS, before=withhold)
    line(process)
    process.send_signal(signal.SIGTERM)
    # Node.js resets both when it starts, so the command receives SIGTERM.
    ended_by = signal.SIGTERM if quorlock.installation == "npm" else signal.SIGKILL
    assert finish(process).returncode == 128 + ended_by
    wait_until(lambda: not keys(servers))


def test_the_command_inherits_the_signal_mask_and_the_ignored_signals(
    quorlock: CommandLine, servers: Servers
) -> None:
    if quorlock.installation == "npm":
        pytest.skip("Node.js resets both when it starts")
    blocked = {signal.SIGUSR1, signal.SIGCHLD, signal.SIGWINCH}
    ignored = {signal.SIGUSR2, signal.SIGHUP, signal.SIGTTOU, signal.SIGCHLD}

    def inherit() -> None:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        block(blocked)

    arguments = ["run", "r", "--", "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]
    done = finish(start(quorlock, *arguments, before=inherit))
    assert done.returncode == 0, done.stderr
    bits = {name: int(value, 16) for name, value in map(str.split, done.stdout.splitlines())}
    assert numbers(bits["SigBlk:"]) == blocked
    assert numbers(bits["SigIgn:"]) == ignored


def numbers(bits: int) -> set[int]:
    # Those from 32 on are for real time, or belong to the C library.
    return {number for number in range(1, 32) if bits >> (number - 1) & 1}


@pytest.mark.skipif(not shutil.which("timeout"), reason="there is no timeout(1)")
def test_timeout_ends_a_stopped_command(quorlock: CommandLine, servers: Servers) -> None:
    script = "kill -STOP $$; exec sleep 1000"
    command = ["timeout", "1", *quorlock.program, "run", "r", *SHELL, script]
    done = subprocess.run(command, env=quorlock.environment, timeout=TIMEOUT, check=False)
    assert done.returncode == 124
    wait_until(lambda: not keys(servers))
