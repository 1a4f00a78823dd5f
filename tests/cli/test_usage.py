"""Usage errors, help, completions, manual pages and JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from command_line import CommandLine
from servers import Servers

SOON = ["--connect-timeout", "50ms"]


@pytest.fixture
def quorlock() -> CommandLine:
    return CommandLine("cargo", ["memory://a"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "r"], "COMMAND"),
        (["run", "--", "true"], "RESOURCE"),
        (["run", "r", "echo", "x"], "put -- between the resource and the command"),
        (["run", "r", "ls", "-l"], "put -- between the resource and the command"),
        (["run", "r", "-c", "x", "--", "true"], "cannot be used with"),
        (["run", "--holder", "x" * 129, "r", "--", "true"], "--holder must be"),
        (["run", "--outage=-1s", "r", "--", "true"], "--outage must be a duration of 0"),
        (["run", "--ttl", "10", "r", "--", "true"], "the unit is missing: write 10s"),
        (["run", "--wait", "soon", "r", "--", "true"], "--wait"),
        (["run", "--ttl", "1ms", "r", "--", "true"], "--ttl must be a duration from 10 ms"),
        (["run", "--wait=-1s", "r", "--", "true"], "--wait must be a duration of 0"),
        (["run", "--max-hold", "1ms", "r", "--", "true"], "--max-hold must be a duration of 10 ms"),
        (["run", "--kill-after", "6s", "r", "--", "true"], "--kill-after must be"),
        (["run", "--max-hold", "5ms", "-k", "1s", "r", "--", "true"], "--max-hold must be"),
        (["run", "--restart-guard", "5s", "r", "--", "true"], "--ttl must not be longer than"),
        (["run", "r", "r", "--", "true"], "named twice"),
        (["run", "--adopt", "r", "--", "true"], "--adopt takes no resource"),
        (["run", "--adopt", "--detach", "--", "true"], "cannot be used with"),
        (["run", "--adopt"], "COMMAND"),
        (["run", "--detach", "--", "true"], "RESOURCE"),
        (["run", "--detach", "--keep", "1m", "r", "--", "true"], "set them where the lease is"),
        (["serve", "--heartbeat-timeout", "1ms"], "--heartbeat-timeout must be a duration from"),
        (["run", "--detach", "--within", "1ms", "r", "--", "true"], "--within must be a duration"),
        (["run", "--within", "1s", "r", "--", "true"], "--detach"),
        (["run", "--lease-file", "-", "r", "--", "true"], "--adopt"),
        (["status", ""], "not an empty one"),
        (["status", "--drift-factor", "0.9", "r"], "--drift-factor must be a number"),
        (["bench", "--duration", "0"], "--duration"),
        (["bench", "--duration", "200000000000000d"], "--duration"),
        (["bench", "--concurrency", "0"], "--concurrency"),
        (["--nodes-file", "/no/such/file", "doctor"], "/no/such/file"),
        (["--nodes-file", "/dev/null", "doctor"], "/dev/null contains no URL"),
        (["--nodes-file", "/no/such/file", "--node", "memory://a", "doctor"], "cannot be used"),
        (["acquire", "r", "--", "true"], "acquire runs no command: write `quorlock run"),
        (["run", "r", "-c", "echo", "done"], "put the script in quotes"),
        (["run", "r", "-cecho", "done"], "put the script in quotes"),
        (["status", "--node", "memory://a", "--node", "", "r"], "--node number 2 is empty"),
        (["status", "--node", "memory://a", "--node", "b:7000", "r"], "--node number 2"),
        (["status", "--node", "memory://a,,", "r"], "part 2 of it is empty"),
        (["status", "--node", "memory://a", "--node", "memory://b,", "r"], "part 3 of it is empty"),
        (["--node", "memory://a", "status", "--node", "memory://b", "r"], "all nodes in one place"),
        (["release"], "release needs the text of a lease, in --lease or"),
        (["release", "--lease", ""], "the lease is empty"),
        (["extend", "--lease", ""], "the lease is empty"),
        (["list", "--limit", "0"], "--limit"),
        (["man", "nothing"], "there is no command nothing"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_usage_errors_are_explained(
    quorlock: CommandLine, arguments: list[str], expected: str
) -> None:
    done = quorlock.run(*arguments)
    assert (done.returncode, done.stdout) == (64, "")
    assert expected in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["r", "--", "sh", "-c", "echo r done"],
        ["done", "--", "sh", "-c", "echo done"],
        ["--holder", "r", "-c", "echo done", "r"],
    ],
)
def test_words_of_a_command_are_no_resources(
    quorlock: CommandLine, servers: Servers, arguments: list[str]
) -> None:
    done = quorlock.run("run", *arguments)
    assert (done.returncode, done.stdout.split()[-1]) == (0, "done"), done.stderr


def test_a_command_does_not_get_a_file_of_the_program_for_a_closed_stream(
    quorlock: CommandLine, servers: Servers
) -> None:
    script = 'exec >&-; exec "$@"'
    inner = [*quorlock.program, "run", "r", "--", "sh", "-c", "echo; echo status $? >&2"]
    done = subprocess.run(
        ["sh", "-c", script, "sh", *inner],
        env=quorlock.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "status 0\n" in done.stderr


@pytest.mark.parametrize("wrong", ["localhost:6379", "b:7000,redis://c", ",redis://c"])
def test_a_line_of_a_nodes_file_that_is_no_url_is_named(
    wrong: str, quorlock: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "nodes"
    file.write_text(f"# ours\nredis-cluster://127.0.0.1:1\n{wrong}\n")
    done = quorlock.run("--nodes-file", str(file), "doctor")
    assert done.returncode == 64
    assert f"line 3 of the nodes file {file} is not a URL" in done.stderr


def test_usage_errors_are_json_if_that_is_requested(quorlock: CommandLine) -> None:
    for arguments, expected in [
        (["status", "--json"], "RESOURCE"),
        (["--json", "run", "--wait", "soon", "r", "--", "true"], "--wait"),
        (["--json", "doctor", "--require", "some"], "--require"),
        (["--json", "status", ""], "not an empty one"),
    ]:
        done = quorlock.run(*arguments)
        assert (done.returncode, done.stdout) == (64, "")
        error = json.loads(done.stderr)
        assert (error["error"], error["exit_status"]) == ("CONFIG", 64)
        assert expected in error["message"]
    # This flag belongs to the command.
    done = quorlock.run("run", "--wait", "soon", "r", "--", "true", "--json")
    assert done.stderr.startswith("error: ")


def test_no_password_is_shown(quorlock: CommandLine) -> None:
    secret = "hunter-2"
    url = f"redis://user:{secret}@127.0.0.1:1"
    quorlock.environment["QUORLOCK_NODES"] = url
    for arguments in [
        ["--help"],
        ["run", "--help"],
        ["man"],
        ["man", "run"],
        ["status", "r", *SOON],
        ["status", "--json", "r", *SOON],
        ["doctor", *SOON],
        ["bench", "-d", "10ms", *SOON],
        ["run", "r", "-v", *SOON, "--", "true"],
        ["release", "--yes", "r", *SOON],
        ["doctor", url],
        ["doctor", "--node", url + ":bad"],
        ["doctor", "--node", f"redis://user:{secret}/x@host"],
        ["doctor", "--bad", url],
        ["doctor", f"--bad={url}"],
        ["doctor", "--connect-timeout", url],
    ]:
        done = quorlock.run(*arguments)
        assert secret not in done.stdout + done.stderr, arguments


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "elvish", "powershell"])
def test_completions_are_printed_for_each_shell(quorlock: CommandLine, shell: str) -> None:
    done = quorlock.run("completions", shell)
    assert (done.returncode, done.stderr) == (0, "")
    assert "conflict-exit-code" in done.stdout
    if shell == "bash":
        # Runs the completion as bash would.
        script = "COMP_WORDS=(quorlock st); COMP_CWORD=1; _quorlock quorlock st quorlock"
        script = f'{done.stdout}\n{script}; echo "${{COMPREPLY[@]}}"'
        completed = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
        assert completed.stdout == "status\n"


COMMANDS = ["run", "acquire", "extend", "status", "list", "watch", "release", "doctor", "bench"]


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_each_command_has_a_manual_page(quorlock: CommandLine, command: str | None) -> None:
    done = quorlock.run("man", *([command] if command else []))
    assert (done.returncode, done.stderr) == (0, "")
    name = f"quorlock-{command}" if command else "quorlock"
    title = next(row for row in done.stdout.splitlines() if row.startswith(".TH"))
    assert title.split()[1:3] == [name, "1"]
    assert "QUORLOCK_NODES" in done.stdout


def test_a_closed_stdout_is_not_an_error(quorlock: CommandLine) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [*quorlock.program, "completions", "bash"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) in [(0, ""), (-signal.SIGPIPE, "")]


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason=f"no {FULL} on this system")
@pytest.mark.parametrize(
    "arguments",
    [
        "completions bash",
        "man",
        "status r",
        "status --json r",
        "doctor",
        "watch r",
        "bench -d 10ms",
    ],
)
def test_a_result_that_cannot_be_printed_is_an_error(quorlock: CommandLine, arguments: str) -> None:
    with FULL.open("w") as full:
        command = [*quorlock.program, *arguments.split()]
        done = subprocess.run(
            command, env=quorlock.environment, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 125
    assert "No space left on device" in done.stderr


def test_watch_ends_when_nobody_reads(quorlock: CommandLine) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [*quorlock.program, "watch", "--interval", "10ms", "r"]
    done = subprocess.run(
        command, env=quorlock.environment, stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert (done.returncode, done.stderr) in [(0, ""), (-signal.SIGPIPE, "")]


def test_control_characters_in_names_are_escaped(quorlock: CommandLine) -> None:
    name = 'a"\n\x1b[31m\u2028ü'
    done = quorlock.run("status", "--json", name)
    assert json.loads(done.stdout)[0]["resource"] == name
    assert "\x1b" not in quorlock.run("status", name).stdout


def test_a_shell_command_without_a_shell_gets_a_hint(quorlock: CommandLine) -> None:
    for command in ["echo a && echo b", "A=1", "cd"]:
        done = quorlock.run("run", "-q", "r", "--", command)
        assert done.returncode == 127
        assert "-c 'SCRIPT'" in done.stderr
    done = quorlock.run("run", "-q", "r", "--", "no-such-command")
    assert "shell" not in done.stderr


def test_help_and_the_manual_list_the_exit_statuses(quorlock: CommandLine) -> None:
    for arguments in [["--help"], ["run", "--help"], ["man"], ["man", "run"]]:
        rows = [row.split(maxsplit=1) for row in quorlock.run(*arguments).stdout.splitlines()]
        statuses = {row[0].replace("\\", "") for row in rows if len(row) == 2}
        assert {"64", "69", "75", "79", "125", "126", "127", "128+n"} <= statuses, arguments
