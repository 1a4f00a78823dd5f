"""`quorlock run --shared`: commands that run side by side under a shared lock."""

from __future__ import annotations

from command_line import CommandLine, finish, line, parse_json
from nodes import keys
from servers import Servers

SHELL = ["--", "sh", "-c"]
HOLD = [*SHELL, "echo held; read x; true"]


def test_readers_run_side_by_side_and_a_writer_does_not(
    quorlock: CommandLine, servers: Servers
) -> None:
    readers = [quorlock.start("run", "--shared", "r", *HOLD) for _ in range(2)]
    assert [line(reader) for reader in readers] == ["held", "held"]
    assert quorlock.run("run", "-n", "r", "--", "true").returncode == 75
    assert quorlock.run("run", "-n", "-s", "r", "--", "true").returncode == 0
    assert [finish(reader).returncode for reader in readers] == [0, 0]
    assert quorlock.run("run", "-n", "r", "--", "true").returncode == 0
    assert keys(servers) == []


def test_each_resource_has_its_mode(quorlock: CommandLine, servers: Servers) -> None:
    process = quorlock.start("run", "--shared-for", "rates", "account", "rates", *HOLD)
    assert line(process) == "held"
    assert quorlock.run("run", "-ns", "rates", "--", "true").returncode == 0
    for resource in "rates", "account":
        assert quorlock.run("run", "-n", resource, "--", "true").returncode == 75
    assert quorlock.run("run", "-ns", "account", "--", "true").returncode == 75
    assert finish(process).returncode == 0
    assert keys(servers) == []


def test_acquire_extend_and_release_a_shared_lease(quorlock: CommandLine, servers: Servers) -> None:
    text = quorlock.run("acquire", "--shared", "r", "--ttl", "10m").stdout.strip()
    assert quorlock.run("run", "-ns", "r", "--", "true").returncode == 0
    assert quorlock.run("extend", "--lease", text).returncode == 0
    assert quorlock.run("run", "-n", "r", "--", "true").returncode == 75
    assert quorlock.run("release", "--lease", text).returncode == 0
    assert keys(servers) == []


def test_status_and_list_show_the_readers(quorlock: CommandLine, servers: Servers) -> None:
    names = ["web-1", "web-2"]
    commands = [quorlock.start("run", "--shared", "--holder", name, "r", *HOLD) for name in names]
    assert [line(command) for command in commands] == ["held", "held"]
    shown = quorlock.run("status", "r").stdout
    assert shown.startswith("r: held by 2 readers, ")
    assert "  reader web-1, token " in shown
    assert "  reader web-2, token " in shown
    assert shown.count(": held by 2 readers, for ") == len(servers.urls)
    assert "2 readers" in quorlock.run("list").stdout
    (status,) = parse_json(quorlock.run("status", "--json", "r").stdout)
    assert sorted(reader["holder"] for reader in status["readers"]) == names
    assert all(set(reader) == {"holder", "token", "expires_in_ms"} for reader in status["readers"])
    assert [finish(command).returncode for command in commands] == [0, 0]


def test_mistakes_are_usage_errors(quorlock: CommandLine) -> None:
    for arguments, message in [
        (["run", "--shared", "--shared-for", "r", "r", "--", "true"], "cannot be used with"),
        (["run", "--shared-for", "x", "r", "--", "true"], "is not a resource of this lock"),
        (["run", "--adopt", "--shared", "--", "true"], "--adopt takes no mode"),
    ]:
        done = quorlock.run(*arguments)
        assert (done.returncode, done.stdout) == (64, ""), done
        assert message in done.stderr
