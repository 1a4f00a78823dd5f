"""`quorlock run`: the environment of the command, its exit status, signals and lost leases."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.installations import every_installation
from command_line import CommandLine, finish, is_alive, line, parse_json
from nodes import freeze, is_everywhere, keys, queued, steal, thaw
from servers import Servers
from waiting import wait_until

SHELL = ["--", "sh", "-c"]
TTL = "2s"

STARTS_ANOTHER = """
import os, signal, subprocess, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
print(subprocess.Popen(["sleep", "1000"]).pid, flush=True)
time.sleep(1000)
"""
"""A program that prints the id of its child process, and does not pass signals on to it."""

IGNORES_TERM = "trap '' TERM; sleep 1000 & echo $! $$; while :; do sleep 0.05; done"
"""A command that ignores SIGTERM, as does its child process. Prints the ids of both."""

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="subreapers exist on Linux only")
ESCAPES = pytest.param(
    "(setsid sh -c 'trap \"\" TERM; echo $$; exec sleep 1000' &); exec sleep 1000", marks=only_linux
)
"""A command that starts a process in another session and without a parent. Prints its id."""

every_command = pytest.mark.parametrize(
    "command", ["sleep 1000 & echo $! $$; wait", IGNORES_TERM, ESCAPES]
)


@every_installation
def test_a_command_runs_while_the_lock_is_held(quorlock: CommandLine, servers: Servers) -> None:
    script = 'echo "$QUORLOCK_RESOURCE $QUORLOCK_FENCE $QUORLOCK_TOKEN"; read answer; exit 3'
    process = quorlock.start("run", "r", *SHELL, script)
    resource, fence, token = line(process).split()
    assert resource == "r"
    wait_until(lambda: is_everywhere(servers, "r", token))
    wait_until(lambda: is_everywhere(servers, "{r}:fence", fence))
    done = finish(process)
    assert (done.returncode, done.stdout) == (3, "")
    wait_until(lambda: not keys(servers))


def test_the_log_says_who_holds_the_lock_and_when(quorlock: CommandLine, servers: Servers) -> None:
    script = 'echo "$QUORLOCK_FENCE $QUORLOCK_TOKEN"; read x'
    first = quorlock.start("run", "--holder", "one", "r", *SHELL, script)
    fence, token = line(first).split()
    second = quorlock.start("run", "--verbose", "r", *SHELL, "true")
    wait_until(lambda: queued(servers) == [1, 1, 1])
    acquired, released = finish(first).stderr.splitlines()
    assert acquired.startswith("quorlock: acquired r as one after ")
    assert acquired.endswith(f", fence {fence}")
    assert released.startswith("quorlock: released r after ")
    log = finish(second).stderr
    waiting, *nodes, acquired, released = log.splitlines()
    assert waiting == "quorlock: waiting for r, held by one"
    assert any(": held" in node for node in nodes)
    assert f"quorlock: acquired r as {socket.gethostname()}:{second.pid} after" in acquired
    assert token[:9] not in log
    assert finish(quorlock.start("run", "-q", "r", "--", "true")).stderr == ""


def test_several_resources_have_fences_but_no_single_fence(
    quorlock: CommandLine, servers: Servers
) -> None:
    script = 'echo "$QUORLOCK_FENCES"; echo "${QUORLOCK_RESOURCE-none} ${QUORLOCK_FENCE-none}"'
    outer = {"QUORLOCK_RESOURCE": "of another", "QUORLOCK_FENCE": "7"}
    done = quorlock.run("run", "b", 'a"', *SHELL, script, environment=outer)
    fences, none = done.stdout.splitlines()
    assert json.loads(fences).keys() == {'a"', "b"}
    assert none == "none none"
    assert done.returncode == 0
    wait_until(lambda: not keys(servers))


@every_installation
def test_arguments_and_streams_are_passed_on_unchanged(quorlock: CommandLine) -> None:
    script = b'printf %s "$1"; cat; echo err >&2; kill -PIPE $$; echo "SIGPIPE is ignored"'
    command: list[str | bytes] = [*quorlock.program, "run", "r", "--", "sh", "-c", script, "sh"]
    command[-6:-6] = ["-q"]
    command.append(b"\xff --json '")
    environment = quorlock.environment
    done = subprocess.run(command, input=b"\xfe in", capture_output=True, env=environment)
    assert (done.stdout, done.stderr) == (b"\xff --json '\xfe in", b"err\n")
    assert done.returncode == 128 + signal.SIGPIPE


def test_a_held_lock_is_a_conflict(quorlock: CommandLine, servers: Servers) -> None:
    steal(servers, "r")
    done = quorlock.run("run", "--wait", "0", "r", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr.startswith("quorlock: ")
    assert "held" in done.stderr
    done = quorlock.run("run", "-w", "10ms", "-E", "9", "-q", "r", "--", "echo", "ran")
    assert (done.returncode, done.stdout, done.stderr) == (9, "", "")
    done = quorlock.run("run", "--json", "r", "--", "echo", environment={"QUORLOCK_WAIT": "0"})
    error = parse_json(done.stderr)
    assert (error["error"], error["exit_status"], error["resources"]) == ("TIMEOUT", 75, ["r"])
    # A node is pending if the result was certain before it answered.
    assert "held" in {node["outcome"] for node in error["nodes"]} <= {"held", "pending"}
    wait_until(lambda: keys(servers) == ["r"] * 3)


def test_too_few_nodes_are_reported_with_their_outcomes(
    quorlock: CommandLine, servers: Servers
) -> None:
    servers[0].kill()
    servers[2].kill()
    arguments = ["run", "--json", "--connect-timeout", "50ms", "r", "--", "echo", "ran"]
    done = quorlock.run(*arguments)
    assert (done.returncode, done.stdout) == (69, "")
    error = parse_json(done.stderr)
    assert (error["error"], error["exit_status"]) == ("NO_QUORUM", 69)
    assert error["nodes"][0]["outcome"] == "unreachable"
    wait_until(lambda: servers[1].command("EXISTS", "r") == 0)


def test_a_command_that_cannot_be_run_has_the_status_of_the_shell(
    quorlock: CommandLine, servers: Servers, tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_text("no program")
    for command, status in [("no-such-command", 127), (str(text), 126), (str(tmp_path), 126)]:
        done = quorlock.run("run", "r", "--", command)
        assert (done.returncode, done.stdout) == (status, "")
        assert f"cannot run {command}" in done.stderr
    wait_until(lambda: not keys(servers))


def test_quiet_silences_a_held_lock_and_no_error(
    quorlock: CommandLine, servers: Servers, tmp_path: Path
) -> None:
    """The line of a crontab: `--quiet -E 0` must not hide why a job has not run."""
    cron = ["run", "--quiet", "--wait", "0", "-E", "0"]
    steal(servers, "held")
    done = quorlock.run(*cron, "held", "--", "echo", "ran")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = quorlock.run(*cron, "--json", "held", "--", "echo", "ran")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    text = tmp_path / "text"
    text.write_text("no program")
    bad_url = {"QUORLOCK_NODES": "redis://127.0.0.1:port"}
    no_nodes = {"QUORLOCK_NODES": ""}
    for arguments, environment, status, expected in [
        (["r", "--", "no-such-command"], {}, 127, "cannot run no-such-command"),
        (["r", "--", str(text)], {}, 126, "cannot run"),
        (["r", "--", "true"], bad_url, 64, "port"),
        (["r", "--", "true"], no_nodes, 64, "no nodes"),
        (["--kill-after", "1h", "r", "--", "true"], {}, 64, "--kill-after"),
        (["", "--", "true"], {}, 64, "empty"),
        (["r"], {}, 64, "COMMAND"),
        (["r", "--", "true"], {"QUORLOCK_TTL": "soon"}, 64, "'soon' for QUORLOCK_TTL"),
    ]:
        done = quorlock.run(*cron, *arguments, environment=environment)
        assert (done.returncode, done.stdout) == (status, ""), done
        assert done.stderr.startswith("quorlock: "), done
        assert expected in done.stderr
        assert len(done.stderr.splitlines()) == 1, done

    servers[0].kill()
    servers[1].kill()
    cron += ["--connect-timeout", "50ms"]
    done = quorlock.run(*cron, "r", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (69, "")
    (message,) = done.stderr.splitlines()
    assert message.startswith("quorlock: too few nodes could vote")
    assert all(f"{url}: unreachable" in message for url in servers.urls[:2])
    done = quorlock.run(*cron, "--json", "r", "--", "echo", "ran")
    assert parse_json(done.stderr)["error"] == "NO_QUORUM"


def test_quiet_does_not_silence_a_lost_lease(quorlock: CommandLine, servers: Servers) -> None:
    cron = ["run", "--quiet", "-E", "0"]
    process = quorlock.start(*cron, "--ttl", TTL, "r", *SHELL, "echo; sleep 1000")
    line(process)
    steal(servers, "r")
    done = finish(process)
    assert done.returncode == 79
    (message,) = done.stderr.splitlines()
    assert message.startswith("quorlock: ")
    assert "majority" in message


def test_the_conflict_exit_code_changes_no_other_status(
    quorlock: CommandLine, servers: Servers
) -> None:
    quorlock.environment |= {"QUORLOCK_CONFLICT_EXIT_CODE": "0", "QUORLOCK_WAIT": "0"}
    steal(servers, "held")
    assert quorlock.run("run", "held", "--", "true").returncode == 0
    assert quorlock.run("run", "r", *SHELL, "exit 75").returncode == 75
    assert quorlock.run("run", "r", "--", "no-such-command").returncode == 127
    servers[0].kill()
    servers[1].kill()
    assert quorlock.run("run", "--connect-timeout", "50ms", "held", "--", "true").returncode == 69


@every_installation
@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "ALRM"])
def test_signals_are_passed_on(quorlock: CommandLine, servers: Servers, name: str) -> None:
    script = f"trap 'echo {name}; exit 7' {name}; echo ready; while :; do sleep 0.02; done"
    process = quorlock.start("run", "r", *SHELL, script)
    assert line(process) == "ready"
    process.send_signal(signal.Signals[f"SIG{name}"])
    done = finish(process)
    assert (done.returncode, done.stdout) == (7, f"{name}\n")
    wait_until(lambda: not keys(servers))


@every_installation
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_whole_group(
    quorlock: CommandLine, servers: Servers, number: int
) -> None:
    process = quorlock.start("run", "r", "--", sys.executable, "-c", STARTS_ANOTHER)
    started = int(line(process))
    process.send_signal(number)
    assert finish(process).returncode == 128 + number
    wait_until(lambda: not is_alive(started))
    wait_until(lambda: not keys(servers))


@every_installation
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_wait(quorlock: CommandLine, servers: Servers, number: int) -> None:
    steal(servers, "r")
    process = quorlock.start("run", "--wait", "forever", "r", "--", "echo", "ran")
    wait_until(lambda: queued(servers) == [1, 1, 1])
    process.send_signal(number)
    done = finish(process)
    assert (done.returncode, done.stdout) == (128 + number, "")
    assert done.stderr == "quorlock: waiting for r\n"
    wait_until(lambda: keys(servers) == ["r"] * 3)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory that all users can read, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield directory


@every_installation
@every_command
def test_a_stolen_lease_stops_the_command(
    quorlock: CommandLine, servers: Servers, command: str
) -> None:
    process = quorlock.start("run", "--ttl", TTL, "--kill-after", "100ms", "r", *SHELL, command)
    started = [int(pid) for pid in line(process).split()]
    steal(servers, "r")
    done = finish(process)
    assert done.returncode == 79
    assert "stopping the command" in done.stderr
    assert "majority" in done.stderr
    wait_until(lambda: not any(is_alive(pid) for pid in started))
    assert servers[0].command("GET", "r") == "thief"


@every_command
def test_a_command_ends_before_a_lease_that_cannot_be_extended(
    quorlock: CommandLine, servers: Servers, command: str
) -> None:
    arguments = ["run", "--ttl", TTL, "--connect-timeout", "200ms", "--json", "r"]
    process = quorlock.start(*arguments, *SHELL, command)
    started = [int(pid) for pid in line(process).split()]
    freeze(servers)
    done = finish(process)
    assert done.returncode == 79
    wait_until(lambda: not any(is_alive(pid) for pid in started))
    error = parse_json(done.stderr)
    assert (error["error"], error["exit_status"]) == ("LEASE_LOST", 79)
    thaw(servers)
    wait_until(lambda: not keys(servers))


@only_linux
def test_a_process_that_has_left_the_group_is_asked_to_end(
    quorlock: CommandLine, servers: Servers
) -> None:
    escapes = "setsid sh -c 'trap \"echo asked; exit\" TERM; echo; while :; do sleep 0.05; done'"
    command = f"({escapes} &); exec sleep 1000"
    process = quorlock.start("run", "--ttl", "3s", "--kill-after", "1500ms", "r", "-c", command)
    assert process.stdout
    process.stdout.readline()
    steal(servers, "r")
    done = finish(process)
    assert (done.returncode, done.stdout) == (79, "asked\n")


@every_installation
@only_linux
def test_only_processes_of_the_command_are_killed(quorlock: CommandLine, servers: Servers) -> None:
    starts_another = 'sleep 1000 > /dev/null 2>&1 & echo $!; exec "$@"'
    quorlock.program = ["sh", "-c", starts_another, "sh", *quorlock.program]
    command = [*SHELL, "echo; exec sleep 1000"]
    process = quorlock.start("run", "--ttl", TTL, "--kill-after", "100ms", "r", *command)
    other = int(line(process))
    line(process)
    steal(servers, "r")
    assert finish(process).returncode == 79
    assert is_alive(other)
    os.kill(other, signal.SIGKILL)


@only_linux
def test_background_processes_survive_the_end_of_the_command(quorlock: CommandLine) -> None:
    done = quorlock.run("run", "r", "-c", "setsid sleep 1000 > /dev/null 2>&1 & echo $!")
    other = int(done.stdout)
    assert is_alive(other)
    os.kill(other, signal.SIGKILL)


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can run programs as others"
)
def test_a_command_that_may_not_be_killed_is_reported(
    quorlock: CommandLine, servers: Servers, scratch: Path
) -> None:
    setpriv = shutil.which("setpriv")
    assert setpriv
    # This program runs as root even if another user starts it, as sudo does.
    as_root = Path(shutil.copy(setpriv, scratch / "as-root"))
    as_root.chmod(0o4755)
    command = [str(as_root), "--reuid=0", "sh", "-c", "echo $$; exec sleep 1000"]
    quorlock.program = [setpriv, "--reuid=1", "--clear-groups", *quorlock.program]
    process = quorlock.start("run", "--ttl", TTL, "--kill-after", "100ms", "r", "--", *command)
    pid = int(line(process))
    steal(servers, "r")
    assert process.stderr
    while "cannot kill the command" not in process.stderr.readline():
        assert process.poll() is None
    os.kill(pid, signal.SIGKILL)
    done = finish(process)
    assert done.returncode == 79
    assert "may have gone on without the lock" in done.stderr


def test_losing_the_majority_of_nodes_stops_the_command(
    quorlock: CommandLine, servers: Servers
) -> None:
    process = quorlock.start(
        "run", "--ttl", TTL, "--connect-timeout", "200ms", "r", *SHELL, IGNORES_TERM
    )
    started = [int(pid) for pid in line(process).split()]
    servers[0].kill()
    servers[1].kill()
    done = finish(process)
    assert done.returncode == 79
    wait_until(lambda: not any(is_alive(pid) for pid in started))
    wait_until(lambda: not servers[2].command("EXISTS", "r"))


@pytest.mark.parametrize("ttl", ["3s", "60s"])
def test_the_command_is_stopped_after_max_hold(
    quorlock: CommandLine, servers: Servers, ttl: str
) -> None:
    done = quorlock.run("run", "--ttl", ttl, "--max-hold", "4s", "r", "--", "sleep", "1000")
    assert done.returncode == 79
    _, stopping, _, ended = done.stderr.splitlines()
    assert "--max-hold for r ends in" in stopping
    assert ended == "quorlock: --max-hold (4.0 s) ended the command"
    wait_until(lambda: not keys(servers))


def test_the_lock_stays_held_after_the_command(quorlock: CommandLine, servers: Servers) -> None:
    done = quorlock.run("run", "--keep", "1m", "--holder", "cron-1", "r", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert done.stderr.splitlines()[-1].endswith(", kept for 60.0 s from now on")
    late = quorlock.run("run", "-n", "r", "--", "echo", "ran again")
    assert (late.returncode, late.stdout) == (75, "")
    assert "held by cron-1 for up to" in late.stderr
    assert quorlock.run("status", "r").returncode == 1
    for server in servers:
        assert 20_000 < int(str(server.command("PTTL", "r"))) <= 60_603
        server.command("DEL", "r")
    # A command that fails has run, too.
    environment = {"QUORLOCK_KEEP": "1m"}
    assert quorlock.run("run", "r", *SHELL, "exit 3", environment=environment).returncode == 3
    assert quorlock.run("run", "-n", "r", "--", "true").returncode == 75
    for server in servers:
        server.command("DEL", "r")
    # One that cannot be run has not.
    done = quorlock.run("run", "--keep", "1m", "r", "--", "/nonexistent")
    assert (done.returncode, "released r" in done.stderr, "kept" in done.stderr) == (
        127,
        True,
        False,
    )
    wait_until(lambda: not keys(servers))
    done = quorlock.run("run", "--keep", "5ms", "r", "--", "true")
    assert done.returncode == 64
    assert "--keep must be a duration from 10 ms to 24 h, or off, not 0.005 s" in done.stderr


def test_a_command_that_fails_by_itself_keeps_its_status(
    quorlock: CommandLine, servers: Servers
) -> None:
    """The lease is lost while the command runs, but quorlock does not notice this until the end.

    A failed command then keeps its status. A successful command gets status 79.
    """
    for status, expected in [(3, 3), (0, 79)]:
        process = quorlock.start("run", "--ttl", "60s", "r", *SHELL, f"echo; read x; exit {status}")
        line(process)
        steal(servers, "r")
        done = finish(process)
        assert done.returncode == expected
        assert "majority" in done.stderr
        for server in servers:
            server.command("DEL", "r")


@every_installation
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a child with its parent")
def test_the_command_is_killed_with_quorlock(quorlock: CommandLine, servers: Servers) -> None:
    process = quorlock.start("run", "--ttl", TTL, "r", *SHELL, "echo $$; exec sleep 1000")
    command = int(line(process))
    process.kill()
    wait_until(lambda: not is_alive(command))
    finish(process)
    wait_until(lambda: not keys(servers))


@every_installation
def test_ignored_signals_stay_ignored(quorlock: CommandLine) -> None:
    """nohup(1) relies on this: it runs its command with SIGHUP ignored."""
    if quorlock.installation == "npm":
        pytest.skip("Node.js resets ignored signals when it starts")
    quorlock.program = ["nohup", *quorlock.program]
    process = quorlock.start("run", "r", *SHELL, "kill -HUP $$; echo ready; exec sleep 1000")
    assert line(process) == "ready"
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    assert finish(process).returncode == 128 + signal.SIGTERM


@every_installation
def test_the_command_is_stopped_if_the_lease_ended_during_a_suspension(
    quorlock: CommandLine, servers: Servers
) -> None:
    process = quorlock.start("run", "--ttl", "1s", "r", *SHELL, IGNORES_TERM)
    started = [int(pid) for pid in line(process).split()]
    os.kill(process.pid, signal.SIGSTOP)
    wait_until(lambda: not keys(servers))
    os.kill(process.pid, signal.SIGCONT)
    assert finish(process).returncode == 79
    wait_until(lambda: not any(is_alive(pid) for pid in started))


def test_a_command_is_gone_before_the_next_one_runs(
    quorlock: CommandLine, servers: Servers
) -> None:
    """The lease cannot be extended, and the command ignores SIGTERM. It must be killed before the
    next holder's command starts."""
    proxies = [servers.proxy(index) for index in range(3)]
    cut_off = {"QUORLOCK_NODES": ",".join(proxy.url for proxy in proxies)}
    # The drift factor makes the safety margin large enough for a busy machine.
    arguments = ["run", "--ttl", TTL, "--drift-factor", "0.25", "--connect-timeout", "200ms", "r"]
    first = quorlock.start(*arguments, *SHELL, IGNORES_TERM, environment=cut_off)
    _, command = line(first).split()
    script = f"kill -0 {command} 2>/dev/null && echo both || echo alone"
    second = quorlock.start("run", "--wait", "forever", "r", *SHELL, script)
    wait_until(lambda: queued(servers) == [1, 1, 1])
    for proxy in proxies:
        proxy.mode = "hold"
    assert finish(second).stdout == "alone\n"
    assert finish(first).returncode == 79


def test_nonblock_and_command_are_as_in_flock(quorlock: CommandLine, servers: Servers) -> None:
    done = quorlock.run("run", "-n", "r", "-c", 'echo "$QUORLOCK_RESOURCE" | tr r R; exit 4')
    assert (done.returncode, done.stdout) == (4, "R\n")
    wait_until(lambda: not keys(servers))
    steal(servers, "r")
    waits = {"QUORLOCK_WAIT": "forever"}
    for flags in [["-n"], ["--nonblock"], ["--nb"], ["-w", "1h", "-n"]]:
        done = quorlock.run("run", *flags, "r", "-c", "echo ran", environment=waits)
        assert (done.returncode, done.stdout) == (75, "")


def test_an_outage_at_the_start_is_ridden_out(quorlock: CommandLine, servers: Servers) -> None:
    proxies = [servers.proxy(index) for index in range(2)]
    for proxy in proxies:
        proxy.mode = "refuse"
    urls = {"QUORLOCK_NODES": ",".join([*(proxy.url for proxy in proxies), servers.urls[2]])}
    arguments = ["run", "--connect-timeout", "50ms", "-n", "r", "-c", "echo ran"]
    assert quorlock.run(*arguments, environment=urls).returncode == 69
    assert quorlock.run(*arguments, "--outage", "100ms", environment=urls).returncode == 69
    process = quorlock.start(*arguments, "--outage", "10m", environment=urls)
    assert process.stderr
    assert "retrying for up to 600 s" in process.stderr.readline()
    for proxy in proxies:
        proxy.mode = "pass"
    done = finish(process)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    # Contention is no outage.
    steal(servers, "held")
    arguments = ["run", "-n", "--outage", "forever", "held", "--", "true"]
    assert quorlock.run(*arguments).returncode == 75


LEAVES_AN_ORPHAN = "(sh -c 'echo $$' &); read x"
"""A command that starts a process and leaves it without a parent. Prints its id."""


@every_installation
@only_linux
def test_orphans_are_reaped(quorlock: CommandLine, servers: Servers) -> None:
    process = quorlock.start("run", "r", "-c", LEAVES_AN_ORPHAN)
    orphan = int(line(process))
    # A zombie would still have a directory there.
    wait_until(lambda: not Path(f"/proc/{orphan}").exists())
    assert process.poll() is None
    assert process.stdin
    process.stdin.write("\n")
    assert finish(process).returncode == 0
