"""`quorlock` on a terminal, as a job of a shell: job control, colours and questions."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shlex
import shutil
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.installations import every_installation
from command_line import CommandLine, state
from nodes import keys, steal
from servers import Servers
from waiting import TIMEOUT, wait_until

pytestmark = [
    every_installation,
    pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed"),
]

PROMPT = "prompt> "

JOB = "run r -- sh -c '{}'".format(
    'trap "echo re\\sumed" CONT; echo re\\ady; until read line; do :; done; echo g\\ot $line'
)
"""Arguments with which `quorlock` runs a command that reads a line. The terminal echoes the typed
arguments, so each word that the command prints is typed with a backslash in it. The output has no
backslash, so tests can distinguish the output from the echo."""


class Shell:
    """An interactive bash on a terminal of its own."""

    def __init__(self, quorlock: CommandLine) -> None:
        self._quorlock = quorlock
        self._text = ""
        self._terminal, terminal = pty.openpty()
        environment = {**quorlock.environment, "TERM": "xterm", "PS1": PROMPT}
        environment.pop("NO_COLOR", None)
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(terminal)
        self.expect(PROMPT)

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def run(self, command: str) -> None:
        """Types a command line, and Enter."""
        self.type(f"{command}\n")

    def quorlock(self, arguments: str) -> None:
        """Types a `quorlock` command with these arguments."""
        self.run(f"{shlex.join(self._quorlock.program)} {arguments}")

    def expect(self, text: str) -> str:
        """Reads until this text appears, and returns the output before it."""
        deadline = time.monotonic() + TIMEOUT
        while text not in self._text:
            left = deadline - time.monotonic()
            ready = left > 0 and select.select([self._terminal], [], [], left)[0]
            assert ready, f"{text!r} is not in {self._text!r}"
            self._text += os.read(self._terminal, 4096).decode(errors="replace")
        before, _, self._text = self._text.partition(text)
        return before

    def expect_status(self, status: int) -> None:
        # Wait for the prompt: text typed before the shell controls the terminal may be lost.
        self.expect(PROMPT)
        self.run("echo sta\\tus=$?.")
        self.expect(f"status={status}.")

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._terminal)


@pytest.fixture
def shell(quorlock: CommandLine) -> Iterator[Shell]:
    shell = Shell(quorlock)
    yield shell
    shell.close()


def test_an_interrupt_goes_to_the_command(shell: Shell, servers: Servers) -> None:
    shell.quorlock(JOB)
    shell.expect("ready")
    shell.type("\x03")
    shell.expect_status(130)
    wait_until(lambda: not keys(servers))


def test_an_interrupt_ends_the_wait(shell: Shell, servers: Servers) -> None:
    steal(servers, "r")
    shell.quorlock("run --wait forever r -- true")
    wait_until(lambda: len(keys(servers)) == 6)
    shell.type("\x03")
    shell.expect_status(130)
    wait_until(lambda: keys(servers) == ["r"] * 3)


def test_a_job_can_be_stopped_and_resumed(shell: Shell, servers: Servers) -> None:
    shell.quorlock(f"--ttl 10m {JOB}")
    shell.expect("ready")
    shell.type("\x1a")
    shell.expect("Stopped")
    shell.expect_status(128 + signal.SIGTSTP)
    wait_until(lambda: keys(servers) == ["r"] * 3)
    shell.expect(PROMPT)
    shell.run("fg")
    shell.expect("resumed")
    shell.type("abc\n")
    shell.expect("got abc")
    shell.expect_status(0)
    wait_until(lambda: not keys(servers))


def test_a_job_resumed_after_its_lease_ended_is_stopped(shell: Shell, servers: Servers) -> None:
    shell.quorlock(f"--ttl 3s {JOB}")
    shell.expect("ready")
    shell.type("\x1a")
    shell.expect("Stopped")
    shell.expect(PROMPT)
    wait_until(lambda: not keys(servers))
    shell.run("fg")
    shell.expect("stopping the command")
    shell.expect_status(79)


def test_a_background_job_gets_the_terminal_with_fg(shell: Shell, servers: Servers) -> None:
    shell.quorlock(f"--ttl 10m {JOB} &")
    shell.expect("ready")
    # A background job that reads from the terminal is stopped.
    shell.run("until jobs | grep Stop; do sleep 0.05; done")
    shell.expect("Stopped")
    shell.expect(PROMPT)
    shell.run("fg")
    shell.expect("resumed")
    shell.type("abc\n")
    shell.expect("got abc")
    shell.expect_status(0)


def test_a_command_in_a_pipeline_gets_the_terminal_when_it_reads(
    shell: Shell, servers: Servers
) -> None:
    shell.quorlock(f"{JOB} | cat")
    shell.expect("ready")
    shell.expect("resumed")
    shell.type("abc\n")
    shell.expect("got abc")
    shell.expect_status(0)
    wait_until(lambda: not keys(servers))


def test_a_command_whose_output_is_passed_on_gets_the_terminal(
    shell: Shell, servers: Servers
) -> None:
    # With this, a process in the background may not write.
    shell.run("stty tostop")
    shell.expect(PROMPT)
    options = "run --ttl 10m --heartbeat-timeout 10m --heartbeat output"
    shell.quorlock(JOB.replace("run", options, 1))
    shell.expect("ready")
    shell.type("abc\n")
    shell.expect("got abc")
    shell.expect_status(0)
    wait_until(lambda: not keys(servers))


def test_a_message_during_the_command_does_not_stop_its_watch(
    shell: Shell, servers: Servers
) -> None:
    shell.run("stty tostop")
    shell.expect(PROMPT)
    shell.quorlock(f"--ttl 3s {JOB}")
    shell.expect("ready")
    steal(servers, "r")
    shell.expect("stopping the command")
    shell.expect_status(79)


def test_a_lease_is_printed_from_the_background(shell: Shell, servers: Servers) -> None:
    shell.run("stty tostop")
    shell.expect(PROMPT)
    shell.quorlock("--ttl 10m acquire r &")
    shell.expect("valid for")


def expiry(servers: Servers) -> int:
    return int(str(servers[0].command("PEXPIRETIME", "r")))


def test_another_part_of_a_pipeline_cannot_stop_the_renewal(shell: Shell, servers: Servers) -> None:
    command = "sh -c 'echo; exec sleep 1000'"
    reads = "sh -c 'read line; echo re\\ady; read line < /dev/tty'"
    shell.quorlock(f"--ttl 2s run r -- {command} | {reads} &")
    shell.expect("ready")
    expires = expiry(servers)
    wait_until(lambda: expiry(servers) >= expires + 4000)
    shell.run("kill %1; kill -CONT %1")
    wait_until(lambda: not keys(servers))


def test_no_process_of_a_command_goes_on_while_its_lease_is_not_renewed(
    shell: Shell, servers: Servers
) -> None:
    shell.quorlock("run r -- sh -c 'sleep 1000 & echo wor\\ker=$!.; kill -STOP $$'")
    shell.expect("worker=")
    worker = int(shell.expect("."))
    shell.expect("Stopped")
    wait_until(lambda: state(worker) == "T")
    shell.expect(PROMPT)
    shell.run("fg")
    wait_until(lambda: state(worker) != "T")
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: not keys(servers))


def test_a_job_that_no_shell_can_resume_goes_on(
    shell: Shell, quorlock: CommandLine, servers: Servers, tmp_path: Path
) -> None:
    reads = "until read line < /dev/tty; do :; done"
    command = f"trap 'echo again' CONT; echo command=$$.; {reads}"
    script = tmp_path / "job.sh"
    program = shlex.join(quorlock.program)
    script.write_text(f"{program} --ttl 2s run r -- sh -c {shlex.quote(command)}\ntrue\n")
    # The parent of quorlock is of the same session, and that parent's parent has ended.
    shell.run(f"(sh {script} &)")
    shell.expect("command=")
    reader = int(shell.expect("."))
    wait_until(lambda: state(reader) == "T")
    expires = expiry(servers)
    wait_until(lambda: expiry(servers) >= expires + 1000)
    assert state(reader) == "T"
    shell.run("echo do\\ne")
    assert "again" not in shell.expect("done")
    os.kill(reader, signal.SIGKILL)
    wait_until(lambda: not keys(servers))


def test_two_locks_of_one_job_are_stopped_together(
    shell: Shell, quorlock: CommandLine, servers: Servers, tmp_path: Path
) -> None:
    program = shlex.join(quorlock.program)
    prints = "sh -c 'echo command=$$.; exec sleep 1000'"
    script = tmp_path / "job.sh"
    script.write_text(f"{program} run a -- {prints} &\n{program} run b -- {prints}\n")
    shell.run(f"sh {script}")
    commands = []
    for _ in range(2):
        shell.expect("command=")
        commands.append(int(shell.expect(".")))
    os.kill(commands[0], signal.SIGSTOP)
    wait_until(lambda: all(state(command) == "T" for command in commands))
    shell.expect("Stopped")
    shell.expect(PROMPT)
    for command in commands:
        os.kill(command, signal.SIGKILL)
    shell.run("fg")
    wait_until(lambda: not keys(servers))


def test_output_on_a_terminal_is_coloured_unless_no_color_is_set(shell: Shell) -> None:
    shell.quorlock("status r")
    shell.expect("\x1b[32mfree\x1b[0m")
    shell.expect(PROMPT)
    shell.run("export NO_COLOR=1")
    shell.expect(PROMPT)
    shell.quorlock("status r")
    assert "\x1b[32m" not in shell.expect(PROMPT)


def test_release_asks_for_confirmation(shell: Shell, servers: Servers) -> None:
    steal(servers, "r")
    for answer, status in [("n", 1), ("", 1), ("y", 0)]:
        assert keys(servers) == ["r"] * 3
        shell.quorlock("release r")
        shell.expect("Release it? [y/N]")
        shell.type(f"{answer}\n")
        shell.expect_status(status)
    assert keys(servers) == []


def test_release_ends_only_the_readers_that_it_has_shown(
    shell: Shell, quorlock: CommandLine, servers: Servers
) -> None:
    acquire = ["acquire", "--shared", "--ttl", "10m", "r"]
    shown = quorlock.run(*acquire).stdout.strip()
    wait_until(lambda: len(keys(servers)) == 6)
    shell.quorlock("release r")
    shell.expect("Release it? [y/N]")
    later = quorlock.run(*acquire).stdout.strip()
    shell.type("y\n")
    shell.expect("released r, which has a new holder")
    shell.expect_status(0)
    assert quorlock.run("extend", "--lease", shown).returncode == 79
    assert quorlock.run("release", "--lease", later).returncode == 0
    wait_until(lambda: not keys(servers))


def test_watch_draws_a_table_until_it_is_interrupted(shell: Shell, servers: Servers) -> None:
    shell.quorlock("watch --interval 20ms r other")
    shell.expect("RESOURCE")
    shell.expect("\x1b[32mfree\x1b[0m")
    for server in servers:
        server.command("SET", "r", f"{'0' * 40};web-7:4121", "PX", 600_000)
    shell.expect("\x1b[33mheld\x1b[0m")
    shell.expect("web-7:4121")
    shell.type("\x03")
    shell.expect_status(130)


def test_list_watch_draws_what_is_held_until_it_is_interrupted(
    shell: Shell, servers: Servers
) -> None:
    shell.quorlock("list --watch --interval 20ms orders:")
    assert "RESOURCE" not in shell.expect("nothing whose name begins with orders: is held")
    for server in servers:
        server.command("SET", "other", f"{'0' * 40};web-1:1", "PX", 600_000)
        server.command("SET", "orders:1", f"{'0' * 40};web-7:4121", "PX", 600_000)
    shell.expect("FREE IN")
    shell.expect("\x1b[33mheld\x1b[0m")
    assert "web-1" not in shell.expect("web-7:4121")
    for server in servers:
        server.command("DEL", "orders:1")
    shell.expect("nothing whose name begins with orders: is held")
    shell.type("\x03")
    shell.expect_status(130)
