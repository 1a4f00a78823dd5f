"""`quorlock run --limit` and `status --limit`: commands that hold permits of a semaphore."""

from __future__ import annotations

import pytest
from command_line import CommandLine, cargo_program, finish, line, parse_json
from nodes import keys
from servers import Servers
from waiting import wait_until

SHOW = ["--", "sh", "-c", 'echo "$QUORLOCK_SLOTS $QUORLOCK_FENCE"; read x; true']
TRY = ["run", "-n", "--limit", "2", "api"]


def test_commands_run_side_by_side_up_to_the_limit(quorlock: CommandLine, servers: Servers) -> None:
    commands = [quorlock.start("run", "--limit", "2", "api", *SHOW) for _ in range(2)]
    shown = [line(command).split() for command in commands]
    assert sorted(slot for slot, _ in shown) == ["0", "1"]
    assert all(int(fence) > 0 for _, fence in shown)
    done = quorlock.run(*TRY, "--", "true")
    assert done.returncode == 75
    assert "its limit is 2" in done.stderr
    # The lock of the resource is another one.
    assert quorlock.run("run", "-n", "api", "-c", 'test -z "$QUORLOCK_SLOTS"').returncode == 0
    ended = finish(commands[0])
    assert ended.returncode == 0
    assert f", permit {shown[0][0]}\n" in ended.stderr
    assert quorlock.run(*TRY, "--", "true").returncode == 0
    assert finish(commands[1]).returncode == 0
    wait_until(lambda: keys(servers) == [])


def test_a_command_gets_several_permits(quorlock: CommandLine) -> None:
    several = ["run", "--limit", "3", "--permits", "2", "api"]
    command = quorlock.start(*several, *SHOW)
    slots, _ = line(command).split()
    assert slots in ("0,1", "0,2", "1,2")
    assert quorlock.run(*several, "-n", "--", "true").returncode == 75
    assert quorlock.run("run", "-n", "--limit", "3", "api", "--", "true").returncode == 0
    ended = finish(command)
    assert ended.returncode == 0
    assert f", permits {slots}\n" in ended.stderr


def test_status_shows_the_holders(quorlock: CommandLine, servers: Servers) -> None:
    status = ["status", "--limit", "2", "api"]
    done = quorlock.run(*status)
    assert done.returncode == 0
    assert done.stdout.startswith("api: 2 of 2 permits free\n")
    command = quorlock.start("run", "--limit", "2", "--holder", "web-1", "api", *SHOW)
    slot, fence = line(command).split()
    count = len(servers.urls)
    wait_until(lambda: quorlock.run(*status).stdout.count(": 1 held\n") == count)
    done = quorlock.run(*status)
    assert done.returncode == 0
    assert done.stdout.startswith("api: 1 of 2 permits free\n")
    assert f"  permit {slot}: held by web-1, token " in done.stdout
    assert f"…, fence {fence}, for " in done.stdout
    (shown,) = parse_json(quorlock.run(*status, "--json").stdout)
    (holder,) = shown["holders"]
    assert (shown["resource"], shown["limit"], shown["free"], shown["waiters"]) == ("api", 2, 1, 0)
    assert (holder["slot"], holder["holder"], holder["fence"]) == (int(slot), "web-1", int(fence))
    assert quorlock.run("status", "--limit", "1", "api").returncode == int(slot == "0")
    # A permit is no lock.
    assert quorlock.run("status", "api").stdout.startswith("api: free")
    listed = quorlock.run("run", "b", "--", cargo_program(), "list")
    assert listed.returncode == 0, listed
    assert [row.split()[0] for row in listed.stdout.splitlines()] == ["RESOURCE", "b"]
    assert finish(command).returncode == 0


def test_a_permit_is_handed_over(quorlock: CommandLine) -> None:
    detach = ["run", "--detach", "--limit", "1", "api"]
    done = quorlock.run(*detach, "-c", 'echo "$QUORLOCK_LEASE$QUORLOCK_SLOTS"')
    assert done.returncode == 0, done
    text = {"QUORLOCK_LEASE": done.stdout.strip()}
    assert quorlock.run("run", "-n", "--limit", "1", "api", "--", "true").returncode == 75
    done = quorlock.run("run", "--adopt", "-c", "echo $QUORLOCK_SLOTS", environment=text)
    assert (done.returncode, done.stdout) == (0, "0\n"), done


def test_commands_inherit_a_detached_lease_unless_they_have_what_it_holds(
    quorlock: CommandLine,
) -> None:
    show = ["-n", "-c", 'echo "${QUORLOCK_LEASE:+inherited}"']
    permit = ["run", "--detach", "--limit", "2", "api", "-c", "echo $QUORLOCK_LEASE"]
    text = {"QUORLOCK_LEASE": quorlock.run(*permit).stdout.strip()}
    # The lock and the other permit are independent of it.
    for name in (["api"], ["--limit", "2", "api"]):
        done = quorlock.run("run", *name, *show, environment=text)
        assert (done.returncode, done.stdout) == (0, "inherited\n"), done
    done = quorlock.run("run", "--adopt", *show[1:], environment=text)
    assert (done.returncode, done.stdout) == (0, "\n"), done
    lock = ["run", "--detach", "api", "-c", "echo $QUORLOCK_LEASE"]
    text = {"QUORLOCK_LEASE": quorlock.run(*lock).stdout.strip()}
    done = quorlock.run("run", "--limit", "1", "api", *show, environment=text)
    assert (done.returncode, done.stdout) == (0, "inherited\n"), done


MISTAKES = {
    "--permits 2 a": "--limit <NUMBER>",
    "--limit 2 a b": "--limit takes one resource",
    "--limit 2 --shared a": "'--limit <NUMBER>' cannot be used with '--shared'",
    "--limit 2 --shared-for a a": "'--limit <NUMBER>' cannot be used with '--shared-for",
    "--limit 0 a": "--limit must be a whole number from 1 to 1024, not 0",
    "--limit 1025 a": "--limit must be a whole number from 1 to 1024, not 1025",
    "--limit 1.5 a": "--limit must be a whole number from 1 to 1024, not 1.5",
    "--limit some a": "invalid value 'some' for '--limit <NUMBER>'",
    "--limit 2 --permits 3 a": "--permits must be a whole number from 1 to the --limit, which is 2",
    "--limit 2 --adopt": "--adopt takes no --limit",
}


@pytest.mark.parametrize("arguments", MISTAKES)
def test_mistakes_are_usage_errors(quorlock: CommandLine, arguments: str) -> None:
    done = quorlock.run("run", *arguments.split(), "--", "true")
    assert done.returncode == 64, done
    assert MISTAKES[arguments] in done.stderr


def test_mistakes_of_status(quorlock: CommandLine) -> None:
    for arguments, message in {
        "--limit 2 a b": "--limit takes one resource",
        "--limit 0 a": "--limit must be a whole number from 1 to 1024, not 0",
    }.items():
        done = quorlock.run("status", *arguments.split())
        assert done.returncode == 64, done
        assert message in done.stderr
