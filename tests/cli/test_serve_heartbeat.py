"""`quorlock serve`: a client that hangs loses its leases."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from command_line import CommandLine
from daemons import Connection, Daemon
from nodes import keys
from servers import Argument, Servers
from waiting import wait_until

TTL = ["--ttl", "1s"]
SILENT = "no heartbeat for 2 s"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "quorlock.sock"


def hold(client: Connection, lease: str, *words: str) -> None:
    """Sends each of the commands in turn for three timeouts, ten times per second."""
    end = time.monotonic() + 6
    while time.monotonic() < end:
        for word in words:
            assert int(str(client.ask(word, lease))) > 0
        time.sleep(0.1)


def is_lost(client: Connection, lease: str) -> None:
    """Checks that the lease ends, and why. Does not send a heartbeat before that."""
    error = str(client.ask("LOST", lease))
    assert error.startswith("LEASELOST "), error
    assert SILENT in error
    for word in ("CHECK", "HEARTBEAT", "EXTEND"):
        error = client.error(word, lease)
        assert error.startswith("LEASELOST "), error
        assert SILENT in error
    assert client.ask("UNLOCK", lease) == 0


@pytest.mark.parametrize("word", ["HEARTBEAT", "CHECK", "EXTEND"])
def test_heartbeats_keep_a_lease(quorlock: CommandLine, path: Path, word: str) -> None:
    with Daemon(quorlock, path, *TTL) as daemon, daemon.connect() as client:
        lease, _ = client.lock("r", "HEARTBEAT", 2000)
        hold(client, lease, word)
        assert client.ask("UNLOCK", lease) == 1
        assert client.error("HEARTBEAT", lease).startswith("LEASELOST ")


def test_a_client_that_sends_none_loses_its_lease(
    quorlock: CommandLine, path: Path, servers: Servers
) -> None:
    with Daemon(quorlock, path, *TTL) as daemon, daemon.connect() as client:
        leases = [
            client.lock("r", "HEARTBEAT", 2000)[0],
            client.lock("p", "LIMIT", 2, "heartbeat", 2000)[0],
        ]
        with daemon.connect() as other:
            other.lock("r", "WAIT", "FOREVER")
            # The status is no heartbeat.
            assert other.status()["stats"]["no_heartbeat"] >= 1
        for lease in leases:
            is_lost(client, lease)
    wait_until(lambda: not keys(servers))


def test_a_lease_needs_no_heartbeats_unless_it_says_so(quorlock: CommandLine, path: Path) -> None:
    with Daemon(quorlock, path, *TTL) as daemon, daemon.connect() as client:
        leases = [
            client.lock("r")[0],
            client.lock("off", "HEARTBEAT", 0)[0],
            client.lock("forever", "HEARTBEAT", "FOREVER")[0],
        ]
        silent, _ = client.lock("s", "HEARTBEAT", 2000)
        is_lost(client, silent)
        assert [client.ask("UNLOCK", lease) for lease in leases] == [1, 1, 1]


BOUND = ["--heartbeat-timeout", "2s"]


@pytest.mark.parametrize("options", [[], [3_600_000], [0], ["FOREVER"]])
def test_a_client_cannot_ask_for_more_than_the_daemon_allows(
    quorlock: CommandLine, path: Path, options: list[Argument]
) -> None:
    words: list[Argument] = ["HEARTBEAT", *options] if options else []
    with Daemon(quorlock, path, *TTL, *BOUND) as daemon, daemon.connect() as client:
        lease, _ = client.lock("r", *words)
        is_lost(client, lease)
        lease, _ = client.lock("r")
        text = str(client.ask("DETACH", lease))
        adopted = client.ask("ADOPT", text, *words)
        assert isinstance(adopted, list)
        is_lost(client, str(adopted[0]))


def test_a_client_can_ask_for_less_than_the_daemon_allows(
    quorlock: CommandLine, path: Path
) -> None:
    arguments = [*TTL, "--heartbeat-timeout", "1h"]
    with Daemon(quorlock, path, *arguments) as daemon, daemon.connect() as client:
        lease, _ = client.lock("r", "HEARTBEAT", 2000)
        is_lost(client, lease)


def test_a_wrong_value_is_an_error_even_if_the_daemon_has_its_own(
    quorlock: CommandLine, path: Path
) -> None:
    with Daemon(quorlock, path, *BOUND) as daemon, daemon.connect() as client:
        for value in ("5", "-1", "86400001", "1.5", "soon"):
            for words in (["LOCK", "r"], ["LOCK", "r", "LIMIT", "2"]):
                error = client.error(*words, "HEARTBEAT", value)
                assert error.startswith("CONFIG HEARTBEAT must be a duration from 10 ms to 24 h")
        assert client.error("LOCK", "r", "HEARTBEAT") == "ERR HEARTBEAT needs a value"


def test_the_timeout_of_the_daemon_can_be_in_its_environment(
    quorlock: CommandLine, path: Path
) -> None:
    quorlock.environment["QUORLOCK_HEARTBEAT_TIMEOUT"] = "2s"
    with Daemon(quorlock, path, *TTL) as daemon, daemon.connect() as client:
        lease, _ = client.lock("r")
        is_lost(client, lease)
    quorlock.environment["QUORLOCK_HEARTBEAT_TIMEOUT"] = "1ms"
    done = quorlock.run("serve", "--socket", str(path))
    assert done.returncode == 64
    assert "QUORLOCK_HEARTBEAT_TIMEOUT must be a duration from 10 ms to 24 h" in done.stderr
