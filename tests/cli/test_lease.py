"""`quorlock acquire`, `extend` and `release --lease`: leases that no process holds."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest
from cli.installations import every_installation
from command_line import CommandLine, finish, parse_json
from nodes import is_everywhere, keys, queued, steal
from servers import Servers
from waiting import wait_until

SOON = ["--connect-timeout", "50ms", "--node-timeout", "100ms"]
LONG = ["--ttl", "10m"]


def acquire(quorlock: CommandLine, *arguments: str) -> str:
    """Runs `quorlock acquire`, and returns the text of the lease."""
    done = quorlock.run("acquire", *arguments)
    assert done.returncode == 0, done
    (text,) = done.stdout.splitlines()
    return text


def left(servers: Servers, key: str = "r") -> int:
    """Returns the shortest ttl of the key, in milliseconds; negative if a node lacks it."""
    times = [server.command("PTTL", key) for server in servers]
    return min(time for time in times if isinstance(time, int))


@every_installation
def test_a_lease_is_held_extended_and_released(quorlock: CommandLine, servers: Servers) -> None:
    done = quorlock.run("acquire", "r", "--ttl", "60s")
    (text,) = done.stdout.splitlines()
    acquired, valid = done.stderr.splitlines()
    assert acquired.startswith("quorlock: acquired r ")
    assert valid.startswith("quorlock: r: valid for 5")
    wait_until(lambda: keys(servers) == ["r"] * 3)
    token = str(servers[0].command("GET", "r"))
    assert token not in done.stdout + done.stderr
    assert quorlock.run("run", "-n", "r", "--", "true").returncode == 75

    for server in servers:
        server.command("PEXPIRE", "r", 20_000)
    done = quorlock.run("extend", "--lease", text)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(r"r: valid for 5\d\.", done.stdout)
    assert left(servers) > 50_000
    # The default of --ttl is 10s, the ttl of the lease 60s.
    done = quorlock.run("extend", "--json", "--ttl", "5m", environment={"QUORLOCK_LEASE": text})
    extended = parse_json(done.stdout)
    assert (extended.keys(), extended["fences"].keys()) == ({"fences", "valid_for_ms"}, {"r"})
    (fence,) = extended["fences"].values()
    wait_until(lambda: is_everywhere(servers, "{r}:fence", str(fence)))
    assert 250_000 < extended["valid_for_ms"] < left(servers)

    done = quorlock.run("release", "--lease", text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "released r\n", "")
    assert keys(servers) == []
    for command in ["extend", "release"]:
        done = quorlock.run(command, "--lease", text)
        assert (done.returncode, done.stdout) == (79, "")
        assert 'the lease of "r" has ended' in done.stderr
    assert keys(servers) == []


def test_a_script_keeps_several_resources(quorlock: CommandLine, servers: Servers) -> None:
    script = """
        QUORLOCK_LEASE=$("$@" acquire a 'b"' --ttl 60s --quiet) || exit
        export QUORLOCK_LEASE
        "$@" extend --json && "$@" release
    """
    command = ["sh", "-c", script, "sh", *quorlock.program]
    done = subprocess.run(command, env=quorlock.environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    extended, released = done.stdout.splitlines()
    assert parse_json(extended)["fences"].keys() == {"a", 'b"'}
    assert released == 'released a, b"'
    assert keys(servers) == []


def test_an_ended_lease_is_not_brought_back(quorlock: CommandLine, servers: Servers) -> None:
    text = acquire(quorlock, "r", "--ttl", "300ms", "--node-timeout", "50ms")
    wait_until(lambda: keys(servers) == [])
    done = quorlock.run("extend", "--lease", text)
    assert (done.returncode, done.stdout) == (79, "")
    assert keys(servers) == []


def test_another_holder_is_left_alone(quorlock: CommandLine, servers: Servers) -> None:
    text = acquire(quorlock, *LONG, "r")
    for server in [servers[0], servers[1]]:
        server.command("SET", "r", "thief", "PX", 600_000)
    for command in ["extend", "release"]:
        assert quorlock.run(command, "--lease", text).returncode == 79
    assert [server.command("GET", "r") for server in [servers[0], servers[1]]] == ["thief", "thief"]
    # The rest of the lost lease blocks nobody.
    wait_until(lambda: servers[2].command("EXISTS", "r") == 0)


def test_nodes_that_lost_the_key_do_not_get_it_back(
    quorlock: CommandLine, servers: Servers
) -> None:
    """Otherwise a node could grant the lock to another client in between, unnoticed, and count
    again."""
    text = acquire(quorlock, *LONG, "r")
    servers[0].command("DEL", "r")
    assert quorlock.run("extend", "--lease", text).returncode == 0
    assert servers[0].command("EXISTS", "r") == 0
    servers[1].command("DEL", "r")
    assert quorlock.run("extend", "--lease", text).returncode == 79


def test_a_node_that_did_not_count_at_first_does_not_count_later(
    quorlock: CommandLine, servers: Servers
) -> None:
    servers[0].command("SET", "r", "other")
    text = acquire(quorlock, *LONG, "--node-timeout", "100ms", "r")
    token = str(servers[1].command("GET", "r"))
    for server in [servers[0], servers[1]]:
        server.command("SET", "r", token, "PX", 600_000)
    assert quorlock.run("extend", "--lease", text).returncode == 0
    servers[1].command("DEL", "r")
    # Two of three hold the token, but one of them may have granted the lock to others before.
    assert quorlock.run("extend", "--lease", text).returncode == 79


def test_too_few_nodes_are_no_loss(quorlock: CommandLine, servers: Servers) -> None:
    text = acquire(quorlock, *LONG, "r")
    servers[0].kill()
    assert quorlock.run("extend", "--lease", text).returncode == 0
    servers[1].freeze()
    for command in ["extend", "release"]:
        done = quorlock.run(command, "--lease", text, *SOON)
        assert (done.returncode, done.stdout) == (69, "")
        assert "too few nodes" in done.stderr
    servers[1].thaw()
    assert quorlock.run("release", "--lease", text).returncode == 0


def test_a_wrong_text_is_refused_and_not_shown(quorlock: CommandLine, servers: Servers) -> None:
    text = acquire(quorlock, *LONG, "r")
    for wrong, expected in [
        ("", "the lease is empty"),
        ("orders:42", "no lease text"),
        (text[:-9], "damaged"),
        (text[:40] + "0" + text[40:], "damaged"),
        (text.replace("lease-1:", "lease-2:"), "another version"),
    ]:
        for command in ["extend", "release"]:
            done = quorlock.run(command, f"--lease={wrong}")
            assert (done.returncode, done.stdout) == (64, "")
            assert expected in done.stderr
            assert len(wrong) < 20 or wrong[20:] not in done.stderr
    for arguments in [["extend", text], ["release", "r", "--lease", text], ["status", f"-{text}"]]:
        done = quorlock.run(*arguments)
        assert text not in done.stdout + done.stderr
    # Other nodes, another order of them, and another key prefix.
    others = ",".join(reversed(servers.urls))
    for arguments in [["--node", others], ["--key-prefix", "x:"]]:
        done = quorlock.run("extend", "--lease", text, *arguments)
        assert done.returncode == 64
        assert "acquired on other nodes or with another key prefix" in done.stderr
    assert quorlock.run("release", "--lease", text).returncode == 0


def test_acquire_reports_contention_and_outages_as_run_does(
    quorlock: CommandLine, servers: Servers
) -> None:
    steal(servers, "r")
    assert quorlock.run("acquire", "-n", "r").returncode == 75
    assert quorlock.run("acquire", "-n", "-q", "-E", "3", "r").returncode == 3
    servers[0].kill()
    servers[1].kill()
    done = quorlock.run("acquire", "other", *SOON)
    assert (done.returncode, done.stdout) == (69, "")


@every_installation
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_of_acquire(
    quorlock: CommandLine, servers: Servers, number: int
) -> None:
    steal(servers, "r")
    process = quorlock.start("acquire", "--wait", "forever", "r")
    wait_until(lambda: queued(servers) == [1, 1, 1])
    process.send_signal(number)
    done = finish(process)
    assert (done.returncode, done.stdout) == (128 + number, "")


def test_release_says_what_it_released(quorlock: CommandLine, servers: Servers) -> None:
    acquire(quorlock, *LONG, "r")
    done = quorlock.run("release", "--yes", "r")
    assert done.returncode == 0
    first = done.stdout.splitlines()[0]
    assert first.startswith("released r: it was held by ")
    assert ", fence " in first
    done = quorlock.run("release", "--yes", "r")
    assert done.stdout.splitlines()[0] == "nothing to release: r was free"


def test_a_lock_is_released_if_its_lease_cannot_be_printed(
    quorlock: CommandLine, servers: Servers
) -> None:
    for flags in [], ["--json"]:
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [*quorlock.program, "acquire", "r", *flags],
                stdout=full,
                stderr=subprocess.PIPE,
                env=quorlock.environment,
                text=True,
                check=False,
            )
        assert done.returncode == 125
        assert "the text of its lease cannot be printed" in done.stderr
        assert not keys(servers)
