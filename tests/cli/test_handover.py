"""`quorlock run --detach` and `run --adopt`: leases that go from one process to another."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cli.installations import every_installation
from command_line import CommandLine, finish, line, parse_json
from nodes import is_everywhere, is_free, keys, steal
from servers import Servers
from waiting import wait_until

import quorlock as library

SHELL = ["--", "sh", "-c"]
ENVIRONMENT = 'echo "${QUORLOCK_LEASE-none} ${QUORLOCK_RESOURCE-none} ${QUORLOCK_FENCE-none}"'
SOON = ["--connect-timeout", "50ms", "--node-timeout", "100ms"]


def lease(text: str) -> dict[str, str]:
    """Returns an environment with the text of a lease."""
    return {"QUORLOCK_LEASE": text}


def detach(quorlock: CommandLine, *arguments: str) -> str:
    """Returns the text of a detached lease: its command passes it on, and ends."""
    done = quorlock.run("run", "--detach", *arguments, *SHELL, 'echo "$QUORLOCK_LEASE"')
    assert done.returncode == 0, done
    return done.stdout.strip()


@every_installation
def test_a_command_adopts_the_lease_that_it_gets(quorlock: CommandLine, servers: Servers) -> None:
    outer = ["run", "--detach", "--holder", "giver", "r", "--", *quorlock.program]
    process = quorlock.start(*outer, "run", "--adopt", *SHELL, f"{ENVIRONMENT}; read x; exit 3")
    text, resource, fence = line(process).split()
    assert (text, resource) == ("none", "r")
    wait_until(lambda: is_everywhere(servers, "{r}:fence", fence))
    assert not is_free(servers, "r")
    done = finish(process)
    assert (done.returncode, done.stdout) == (3, "")
    acquired, detached, adopted, released = done.stderr.splitlines()
    assert acquired.startswith("quorlock: acquired r as giver after ")
    assert int(acquired.rpartition(" ")[2]) < int(fence)
    assert detached == "quorlock: detached r"
    assert adopted.startswith("quorlock: adopted r as ")
    assert adopted.endswith(f", fence {fence}")
    assert released.startswith("quorlock: released r after ")
    assert keys(servers) == []


def test_a_command_may_pass_the_text_on(
    quorlock: CommandLine, servers: Servers, tmp_path: Path
) -> None:
    text = detach(quorlock, "--within", "10m", "a", "b", "-q")
    assert sorted(map(str, keys(servers))) == [*"aaabbb"]
    assert quorlock.run("run", "-n", "a", "--", "true").returncode == 75
    # In a file, with a line break at its end.
    file = tmp_path / "lease"
    file.write_text(text + "\n")
    adopt = ["run", "--adopt", "--lease-file", str(file), "--holder", "one"]
    done = quorlock.run(*adopt, *SHELL, 'echo "$QUORLOCK_FENCES"')
    assert done.returncode == 0, done
    assert parse_json(done.stdout).keys() == {"a", "b"}
    assert "quorlock: adopted a, b as one after " in done.stderr
    assert keys(servers) == []
    done = quorlock.run(*adopt, "--", "true")
    assert (done.returncode, done.stdout) == (79, "")
    assert "cannot be adopted" in done.stderr


def test_the_text_may_be_the_first_line_of_stdin(quorlock: CommandLine, servers: Servers) -> None:
    text = detach(quorlock, "r")
    done = subprocess.run(
        [*quorlock.program, "run", "--adopt", "--lease-file", "-", *SHELL, f"{ENVIRONMENT}; cat"],
        env={**quorlock.environment, **lease("of another")},
        input=f"{text}\nthe rest",
        capture_output=True,
        text=True,
        check=True,
    )
    environment, rest = done.stdout.splitlines()
    assert environment.startswith("of another r ")
    assert rest == "the rest"
    assert keys(servers) == []


def test_a_failed_command_releases_the_lock_unless_the_lease_was_adopted(
    quorlock: CommandLine, servers: Servers
) -> None:
    done = quorlock.run("run", "--detach", "r", *SHELL, f"{ENVIRONMENT}; exit 3")
    assert done.returncode == 3
    text, resource, fence = done.stdout.split()
    assert (resource, fence) == ("r", "none")
    assert "quorlock: released r, which nobody has adopted" in done.stderr
    assert keys(servers) == []
    done = quorlock.run("run", "--detach", "r", "--", "no-such-command")
    assert done.returncode == 127
    assert keys(servers) == []

    process = quorlock.start("run", "--detach", "r", *SHELL, f"{ENVIRONMENT}; read x; exit 3")
    text = line(process).split()[0]
    with library.Client(servers.urls).adopt(text) as adopted:
        done = finish(process)
        assert (done.returncode, adopted.valid) == (3, True)
        assert "released" not in done.stderr
        assert not is_free(servers, "r")
        adopted.check()
    wait_until(lambda: keys(servers) == [])


def test_a_limit_in_the_environment_is_not_for_a_handover(
    quorlock: CommandLine, servers: Servers
) -> None:
    environment = {"QUORLOCK_MAX_HOLD": "1s", "QUORLOCK_KILL_AFTER": "2s"}
    done = quorlock.run("run", "--detach", "r", *SHELL, "exit 3", environment=environment)
    assert done.returncode == 3, done.stderr
    assert keys(servers) == []


def test_only_one_adopter_wins(quorlock: CommandLine, servers: Servers) -> None:
    text = detach(quorlock, "r")
    first = ["run", "--adopt", "--holder", "worker-1", *SHELL, "echo; read x; true"]
    process = quorlock.start(*first, environment=lease(text))
    line(process)
    done = quorlock.run("run", "--adopt", "-E", "0", "--", "echo", environment=lease(text))
    assert (done.returncode, done.stdout) == (79, "")
    assert "worker-1 has adopted it" in done.stderr
    assert text not in done.stderr
    assert finish(process).returncode == 0
    # The first one has released it, and others may hold the lock meanwhile.
    steal(servers, "r")
    done = quorlock.run("run", "--adopt", "--json", "--", "echo", environment=lease(text))
    error = parse_json(done.stderr)
    assert (error["error"], error["exit_status"], error["resources"]) == ("LEASE_LOST", 79, ["r"])
    assert keys(servers) == ["r"] * 3


def test_a_lease_that_nobody_adopts_ends(quorlock: CommandLine, servers: Servers) -> None:
    text = detach(quorlock, "--ttl", "2s", "--within", "10ms", "r")
    wait_until(lambda: keys(servers) == [])
    done = quorlock.run("run", "--adopt", "--", "echo", environment=lease(text))
    assert (done.returncode, done.stdout) == (79, "")


def test_an_adopted_lease_that_is_lost_stops_the_command(
    quorlock: CommandLine, servers: Servers
) -> None:
    text = detach(quorlock, "r")
    command = ["run", "--adopt", "--ttl", "1s", *SHELL, "echo; exec sleep 1000"]
    process = quorlock.start(*command, environment=lease(text))
    line(process)
    steal(servers, "r")
    done = finish(process)
    assert done.returncode == 79
    assert "quorlock: lost r: stopping the command" in done.stderr


def test_a_used_text_is_not_passed_on(quorlock: CommandLine, servers: Servers) -> None:
    text = detach(quorlock, "r")
    # The lease of the text can still be adopted while another resource is held.
    done = quorlock.run("run", "-q", "s", *SHELL, ENVIRONMENT, environment=lease(text))
    assert done.stdout.startswith(f"{text} s ")
    done = quorlock.run("run", "-q", "--adopt", *SHELL, ENVIRONMENT, environment=lease(text))
    assert done.stdout.startswith("none r ")
    done = quorlock.run("run", "-q", "r", "t", *SHELL, ENVIRONMENT, environment=lease(text))
    assert done.stdout == "none none none\n"
    # Leases of `quorlock acquire` are none of its business.
    kept = quorlock.run("acquire", "r").stdout.strip()
    done = quorlock.run("run", "-q", "s", *SHELL, ENVIRONMENT, environment=lease(kept))
    assert done.stdout.startswith(f"{kept} s ")


def test_a_wrong_text_is_refused_and_not_shown(quorlock: CommandLine, servers: Servers) -> None:
    kept = quorlock.run("acquire", "--ttl", "10m", "kept").stdout.strip()
    text = detach(quorlock, "--within", "10m", "r")
    for wrong, expected in [
        ("", "QUORLOCK_LEASE has no text of a lease: --adopt takes over"),
        ("orders:42", "QUORLOCK_LEASE: this is no lease text"),
        (text[:-9], "QUORLOCK_LEASE: the lease text is damaged"),
        (text.replace("handover-1:", "handover-2:"), "another version"),
        (kept, "QUORLOCK_LEASE: the text is of a lease that quorlock acquire has printed"),
    ]:
        done = quorlock.run("run", "--adopt", "--", "echo", environment=lease(wrong))
        assert (done.returncode, done.stdout) == (64, "")
        assert expected in done.stderr
        assert len(wrong) < 20 or wrong[20:] not in done.stderr
    for command in ["extend", "release"]:
        done = quorlock.run(command, environment=lease(text))
        assert done.returncode == 64
        assert "of a lease that was detached" in done.stderr
        assert "quorlock run --adopt" in done.stderr
        assert text not in done.stderr
    for arguments in [["--key-prefix", "x:"], ["--node", servers.urls[0]]]:
        done = quorlock.run("run", "--adopt", *arguments, "--", "echo", environment=lease(text))
        assert done.returncode == 64
        assert "QUORLOCK_LEASE: the lease was detached " in done.stderr
    done = quorlock.run("run", "--adopt", "--lease-file", "/no/such/file", "--", "echo")
    assert done.returncode == 64
    assert "cannot be read from /no/such/file" in done.stderr
    for arguments in [["run", "--adopt", text, "--", "echo"], ["run", "--adopt", f"--{text}"]]:
        done = quorlock.run(*arguments)
        assert done.returncode == 64
        assert text not in done.stderr
    assert quorlock.run("run", "--adopt", "--", "true", environment=lease(text)).returncode == 0


def test_contention_and_outages_are_reported_as_without_a_hand_over(
    quorlock: CommandLine, servers: Servers
) -> None:
    steal(servers, "held")
    done = quorlock.run("run", "--detach", "-n", "-E", "3", "held", "--", "echo")
    assert (done.returncode, done.stdout) == (3, "")
    text = detach(quorlock, "--within", "10m", "r")
    servers[0].freeze()
    servers[1].freeze()
    for arguments in [["--detach", "other"], ["--adopt"]]:
        done = quorlock.run("run", *arguments, *SOON, "--", "echo", environment=lease(text))
        assert (done.returncode, done.stdout) == (69, "")
    # The nodes answer again, and the failed attempts cost nothing.
    command = ["run", "--adopt", "--outage", "forever", *SOON, "--", "echo", "ran"]
    process = quorlock.start(*command, environment=lease(text))
    assert process.stderr
    assert "; retrying" in process.stderr.readline()
    servers[0].thaw()
    servers[1].thaw()
    done = finish(process)
    assert (done.returncode, done.stdout) == (0, "ran\n")
