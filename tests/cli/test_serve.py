"""`quorlock serve`: the commands of the protocol, and who owns a lease."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.installations import every_installation
from command_line import CommandLine, cargo_program, parse_json
from daemons import Connection, Daemon
from nodes import freeze, is_everywhere, is_free, keys, steal, thaw
from servers import Argument, ServerReplyError, Servers
from waiting import wait_until

QUICK = ["--ttl", "1s"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "quorlock.sock"


@pytest.fixture
def daemon(quorlock: CommandLine, path: Path) -> Iterator[Daemon]:
    with Daemon(quorlock, path) as daemon:
        yield daemon
        with daemon.connect() as last:
            wait_until(lambda: last.status()["leases"] == 0)
        ended = daemon.terminate()
        assert (ended.returncode, ended.stderr) == (0, "")
    assert not path.exists()


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Connection]:
    with daemon.connect() as connection:
        yield connection


def test_a_lock_is_acquired_extended_and_released(client: Connection, servers: Servers) -> None:
    reply = client.ask("LOCK", "r", "TTL", "30000")
    assert isinstance(reply, list)
    lease, fence, valid = reply
    assert isinstance(lease, str)
    assert lease == f"{client.ask('CLIENT', 'ID')}-1"
    assert isinstance(valid, int)
    assert 20_000 < valid < 30_000
    wait_until(lambda: keys(servers) == ["r"] * 3)
    checked = client.ask("CHECK", lease)
    assert isinstance(checked, int)
    assert 0 < checked <= valid
    extended = client.ask("EXTEND", lease, "TTL", "60000")
    assert isinstance(extended, int)
    assert extended > 30_000
    again = client.ask("EXTEND", lease)
    assert isinstance(again, int)
    assert 30_000 < again <= extended
    assert client.ask("UNLOCK", lease) == 1
    wait_until(lambda: keys(servers) == [])
    # A release that is repeated finds nothing.
    assert client.ask("UNLOCK", lease) == 0
    assert client.error("CHECK", lease) == f"LEASELOST lease {lease} was released or detached"
    assert client.error("EXTEND", lease) == f"LEASELOST lease {lease} was released or detached"
    next_lease, next_fence = client.lock("r")
    assert next_lease == lease.removesuffix("1") + "2"
    assert isinstance(fence, int)
    assert next_fence > fence


def test_several_resources_are_locked_together(client: Connection, servers: Servers) -> None:
    lease, _ = client.lock("a", "b", "ttl", 30000)
    wait_until(lambda: sorted(map(str, keys(servers))) == ["a"] * 3 + ["b"] * 3)
    assert client.error("LOCK", "c", "b", "WAIT", 0).startswith("TIMEOUT ")
    assert client.ask("UNLOCK", lease) == 1
    client.lock("RESOURCES", 2, "TTL", "resources")
    wait_until(lambda: sorted(map(str, keys(servers))) == ["TTL"] * 3 + ["resources"] * 3)


def test_shared_locks_exclude_exclusive_ones(daemon: Daemon, client: Connection) -> None:
    lease, _ = client.lock("r", "MODE", "shared")
    with daemon.connect() as other:
        other.lock("r", "mode", "SHARED", "WAIT", 0)
        assert other.error("LOCK", "r", "WAIT", 0).startswith("TIMEOUT ")
        assert client.ask("UNLOCK", lease) == 1
    client.lock("r")


def test_permits_have_slots(daemon: Daemon, client: Connection) -> None:
    reply = client.ask("LOCK", "api", "LIMIT", 3, "PERMITS", 2)
    assert isinstance(reply, list)
    lease, _, _, slots = reply
    assert isinstance(slots, list)
    assert len(set(map(str, slots))) == 2
    with daemon.connect() as other:
        third = other.ask("LOCK", "api", "LIMIT", 3, "WAIT", 0)
        assert isinstance(third, list)
        assert sorted(map(str, [*slots, *list(third[3] or [])])) == ["0", "1", "2"]  # type: ignore[arg-type]
        assert other.error("LOCK", "api", "LIMIT", 3, "WAIT", 0).startswith("TIMEOUT no permit of")
        status = other.ask("STATUS", "api", "LIMIT", 3)
        assert json.loads(str(status))[0]["free"] == 0
    assert client.ask("UNLOCK", str(lease)) == 1


def test_waiters_get_the_lock_when_it_is_released(daemon: Daemon, client: Connection) -> None:
    lease, fence = client.lock("r")
    with daemon.connect() as other:
        other.send("LOCK", "r", "WAIT", "FOREVER")
        daemon.wait_until_waiting()
        shown = [each for each in client.status()["clients"] if each["waiting"]]
        assert [each["waiting"] for each in shown] == ["r"]
        assert client.ask("UNLOCK", lease) == 1
        reply = other.reply()
        assert isinstance(reply, list)
        assert int(str(reply[1])) > fence


@pytest.mark.parametrize(
    ("resources", "waiting"), [("r s t", "r, s, t"), ("r s t u v", "r, s, t and 2 more")]
)
def test_the_status_names_some_resources_of_a_waiter(
    resources: str, waiting: str, daemon: Daemon, client: Connection
) -> None:
    client.lock("r")
    with daemon.connect() as other:
        other.send("LOCK", *resources.split(), "WAIT", "FOREVER")
        daemon.wait_until_waiting()
        assert waiting in [each["waiting"] for each in client.status()["clients"]]


def test_the_holder_is_the_client(daemon: Daemon, client: Connection) -> None:
    host = os.uname().nodename
    client.lock("r")
    with daemon.connect() as other:
        error = other.error("LOCK", "r", "WAIT", 0)
        assert f" is held by {host}:{os.getpid()}, through the same daemon (fence " in error
        status = json.loads(str(other.ask("STATUS", "r")))
        assert [each["holder"] for each in status] == [f"{host}:{os.getpid()}"]


def test_names_are_shown(daemon: Daemon, client: Connection, quorlock: CommandLine) -> None:
    host = os.uname().nodename
    assert client.ask("CLIENT", "SETNAME", "worker-3") == "OK"
    assert client.ask("CLIENT", "GETNAME") == "worker-3"
    client.lock("named")
    client.lock("given", "HOLDER", "nightly")
    done = quorlock.run("status", "--json", "named", "given")
    shown = parse_json(done.stdout)
    assert [each["holder"] for each in shown] == [f"{host}:worker-3", "nightly"]
    # The same text as that of the command.
    (named,) = json.loads(str(client.ask("STATUS", "named")))
    assert named.keys() == shown[0].keys()


def test_the_status_shows_the_clients(daemon: Daemon, client: Connection) -> None:
    client.ask("CLIENT", "SETNAME", "me")
    client.lock("r")
    with daemon.connect() as other:
        status = other.status()
    own = status["clients"][0]
    number = client.ask("CLIENT", "ID")
    assert (own["id"], own["pid"], own["uid"]) == (number, os.getpid(), os.getuid())
    assert (own["name"], own["leases"], own["waiting"]) == ("me", 1, None)
    assert own["connected_since_ms"] > 1_700_000_000_000
    assert (status["connected"], status["connections"], status["leases"]) == (2, 2, 1)
    assert (status["is_draining"], status["refused"]) == (False, 0)
    assert status["stats"]["wins"] == 1
    assert len(status["stats"]["nodes"]) == 3
    assert "\nquorlock_leases_held 1\n" in str(client.ask("METRICS"))


def test_a_lease_is_handed_over_between_a_connection_and_the_command(
    daemon: Daemon, client: Connection, quorlock: CommandLine, servers: Servers
) -> None:
    lease, fence = client.lock("r")
    text = str(client.ask("DETACH", lease, "WITHIN", 60000))
    assert client.error("CHECK", lease).startswith("LEASELOST ")
    assert client.ask("UNLOCK", lease) == 0
    done = quorlock.run(
        *("run", "--adopt", "-c", 'echo "$QUORLOCK_FENCE"'), environment={"QUORLOCK_LEASE": text}
    )
    assert (done.returncode, int(done.stdout) > fence) == (0, True)
    assert client.error("ADOPT", text).startswith("LEASELOST ")
    assert client.error("ADOPT", "nonsense").startswith("CONFIG ")
    # And back.
    lease, _ = client.lock("other")
    text = str(client.ask("DETACH", lease))
    with daemon.connect() as adopter:
        adopted = adopter.ask("ADOPT", text, "TTL", 30000)
        assert isinstance(adopted, list)
        assert adopter.ask("UNLOCK", str(adopted[0])) == 1
    wait_until(lambda: keys(servers) == [])


def test_a_forged_text_takes_no_more_than_its_own_length(client: Connection) -> None:
    lease, _ = client.lock("r")
    given = str(client.ask("DETACH", lease))
    head, text = given.split(":")
    contents = json.loads(bytes.fromhex(text[:-8]))
    contents |= {"resources": ["x" * 200_000], "shared": [0] * 100_000}
    forged = json.dumps(contents, separators=(",", ":")).encode().hex()
    error = client.error("ADOPT", f"{head}:{forged}{zlib.crc32(forged.encode()):08x}")
    assert error.startswith("CONFIG the lease text")
    assert client.ask("PING") == "PONG"


def test_a_lease_is_handed_over_to_python(client: Connection, servers: Servers) -> None:
    lease, fence = client.lock("r")
    text = str(client.ask("DETACH", lease))
    adopt = (
        "import quorlock, sys; lease = quorlock.Client(sys.argv[1].split(',')).adopt(sys.argv[2])"
        "; print(lease.fence); print(lease.detach())"
    )
    program = [sys.executable, "-c", adopt, ",".join(servers.urls), text]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    adopted, text = done.stdout.split()
    assert int(adopted) > fence
    reply = client.ask("ADOPT", text)
    assert isinstance(reply, list)
    assert int(str(reply[1])) > int(adopted)


# Errors


def test_mistakes_are_config_errors(client: Connection) -> None:
    mistakes: list[tuple[list[Argument], str]] = [
        (["r", "TTL", "5"], "TTL must be a duration from 10 ms to 24 h, not 5 ms"),
        (
            ["r", "TTL", "10s"],
            "TTL must be a duration from 10 ms to 24 h, as a whole number of milliseconds, not",
        ),
        (["r", "WAIT", "-1"], "WAIT must be a duration of 0 (one try) or more, or FOREVER, not -1"),
        (["r", "MODE", "write"], 'MODE must be "exclusive" or "shared", not "write"'),
        (["r", "HOLDER", "x" * 129], "HOLDER must be a string of Unicode characters, at most 128"),
        (["r", "MAXHOLD", "1"], "MAXHOLD must be a duration of 10 ms or more, or FOREVER, not 1"),
        (["r", "MAXHOLD", "3600001"], "MAXHOLD must be at most 3600000 ms, the --max-hold of the"),
        (["r", "MAXHOLD", "FOREVER"], "MAXHOLD must be at most 3600000 ms, the --max-hold of the"),
        (["r", "HEARTBEAT", "9"], "HEARTBEAT must be a duration from 10 ms to 24 h, or FOREVER"),
        (["r", "PERMITS", "1"], "PERMITS needs LIMIT"),
        (["r", "LIMIT", "2", "PERMITS", "3"], "PERMITS must be a whole number from 1 to the LIMIT"),
        (["r", "LIMIT", "0"], "LIMIT must be a whole number from 1 to 1024, not 0"),
        (["r", "LIMIT", "2", "MODE", "shared"], "MODE is not an option of a semaphore"),
        (["r", "s", "LIMIT", "2"], "LIMIT takes one resource"),
        (
            [b"\xff"],
            "the resource must be a string of Unicode characters, not bytes that are not UTF",
        ),
    ]
    for words, expected in mistakes:
        assert client.error("LOCK", *words).startswith(f"CONFIG {expected}"), words
    lease, _ = client.lock("r")
    assert client.error("EXTEND", lease, "TTL", "1").startswith("CONFIG TTL must be")
    assert client.error("DETACH", lease, "WITHIN", "1").startswith("CONFIG WITHIN must be")
    assert client.ask("UNLOCK", lease) == 1


def test_unknown_requests_are_refused(client: Connection) -> None:
    assert client.error("NOSUCH", "x") == "ERR unknown command 'NOSUCH'"
    unused = f"{client.ask('CLIENT', 'ID')}-1"
    assert client.error("CHECK", unused) == f"ERR there is no lease {unused}"
    assert client.error("HEARTBEAT", unused) == f"ERR there is no lease {unused}"
    assert client.error("LOST", "99-1").startswith("ERR this daemon has not issued lease 99-1: ")
    assert client.ask("PING") == "PONG"


def test_commands_of_clients_are_answered(client: Connection) -> None:
    assert client.ask("PING", "x\r\n") == "x\r\n"
    assert client.ask("ECHO", "x") == "x"
    assert client.ask("client", "setinfo", "lib-name", "test") == "OK"
    number = client.ask("CLIENT", "ID")
    assert isinstance(number, int)
    # Clients that read numbers as doubles read it exactly.
    assert 0 < number < 2**53
    assert client.ask("CLIENT", "GETNAME") is None
    assert client.ask("SELECT", "0") == "OK"
    assert client.ask("COMMAND", "DOCS") == []
    assert "server:quorlock" in str(client.ask("INFO", "server"))
    hello = client.ask("HELLO", "2", "SETNAME", "me")
    assert isinstance(hello, list)
    assert dict(zip(hello[::2], hello[1::2], strict=True))["proto"] == 2
    assert client.ask("CLIENT", "GETNAME") == "me"
    assert client.ask("RESET") == "RESET"
    assert client.ask("CLIENT", "GETNAME") is None
    assert client.error("HELLO", "4").startswith("NOPROTO ")
    assert client.ask("QUIT") == "OK"
    assert client.is_closed()


def test_an_outage_is_no_contention(quorlock: CommandLine, path: Path, servers: Servers) -> None:
    soon = ["--connect-timeout", "100ms", "--node-timeout", "50ms"]
    with Daemon(quorlock, path, *soon) as daemon, daemon.connect() as client:
        client.lock("r")
        freeze(servers)
        error = client.error("LOCK", "s")
        assert error.startswith("NOQUORUM ")
        assert error.count("redis://") == 3
        thaw(servers)


def test_a_lost_lease_is_reported(quorlock: CommandLine, path: Path, servers: Servers) -> None:
    with Daemon(quorlock, path, *QUICK) as daemon, daemon.connect() as client:
        lease, _ = client.lock("r")
        with daemon.connect() as other:
            # Another connection may wait for the loss.
            other.send("LOST", lease)
            steal(servers, "r")
            assert str(other.reply()).startswith("LEASELOST ")
        assert client.error("CHECK", lease).startswith("LEASELOST ")
        assert client.error("EXTEND", lease).startswith("LEASELOST ")
        assert str(client.ask("LOST", lease)).startswith("LEASELOST ")
        assert client.ask("UNLOCK", lease) == 0


def test_lost_is_null_if_the_lease_is_released(daemon: Daemon, client: Connection) -> None:
    first, _ = client.lock("a")
    second, _ = client.lock("b")
    with daemon.connect() as other, daemon.connect() as third:
        other.send("LOST", first)
        third.send("LOST", second)
        # Its turn comes after those of the two.
        assert client.ask("PING") == "PONG"
        assert client.ask("UNLOCK", first) == 1
        assert other.reply() is None
        assert other.ask("LOST", first) is None
        client.close()
        assert third.reply() is None
        assert third.ask("LOST", second) is None


def switch_to_resp3(client: Connection) -> None:
    client.send("HELLO", "3")
    assert client.reader.readline() == b"%7\r\n"
    while client.reader.readline() != b"*0\r\n":
        pass


def test_losses_are_not_pushed_unasked(quorlock: CommandLine, path: Path, servers: Servers) -> None:
    with Daemon(quorlock, path, *QUICK) as daemon, daemon.connect() as client:
        client.lock("blocked", "TTL", 60000)
        switch_to_resp3(client)
        lease, _ = client.lock("r")
        steal(servers, "r")
        # A client that takes a push message for an array would take it for the reply to LOCK.
        error = client.error("LOCK", "blocked", "WAIT", 2000)
        assert error.startswith("TIMEOUT ")
        assert client.error("CHECK", lease).startswith("LEASELOST ")
        assert client.ask("PING") == "PONG"


def test_losses_are_pushed_if_the_client_has_asked(
    quorlock: CommandLine, path: Path, servers: Servers
) -> None:
    with Daemon(quorlock, path, *QUICK) as daemon, daemon.connect() as client:
        refused = "ERR CLIENT PUSH ON needs RESP3: send HELLO 3 first"
        assert client.error("CLIENT", "PUSH", "ON") == refused
        switch_to_resp3(client)
        assert client.ask("CLIENT", "PUSH", "ON") == "OK"
        lease, _ = client.lock("r")
        client.lock("blocked", "TTL", 60000)
        # While it is idle.
        steal(servers, "r")
        assert client.reader.readline() == b">3\r\n"
        parts = [client.reply() for _ in range(3)]
        assert parts[:2] == ["lost", lease]
        assert str(parts[2]).startswith("LEASELOST ")
        # While a request waits.
        lease, _ = client.lock("s")
        client.send("LOCK", "blocked", "WAIT", "FOREVER")
        steal(servers, "s")
        assert client.reader.readline() == b">3\r\n"
        assert [client.reply() for _ in range(3)][:2] == ["lost", lease]
        client.close()


# Ownership


def test_the_end_of_a_connection_releases_its_leases(daemon: Daemon, servers: Servers) -> None:
    with daemon.connect() as client, daemon.connect() as other:
        client.lock("a")
        client.lock("b", "c", "TTL", 60000)
        client.lock("p", "LIMIT", 2, "TTL", 60000)
        other.lock("d")
        client.close()
        # The waiter is notified, although the ttl is long.
        other.lock("b", "WAIT", "FOREVER")
        wait_until(lambda: sorted(set(map(str, keys(servers)))) == ["b", "d"])


HOLD = """
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall(b"*4\\r\\n$4\\r\\nLOCK\\r\\n$1\\r\\nr\\r\\n$3\\r\\nTTL\\r\\n$5\\r\\n60000\\r\\n")
print(connection.recv(100)[:2].decode(), flush=True)
sys.stdin.read()
"""


def test_a_killed_client_frees_its_lock(daemon: Daemon, client: Connection) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(daemon.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout
        assert holder.stdout.readline() == "*3\n"
        client.send("LOCK", "r", "WAIT", 30000)
        daemon.wait_until_waiting()
        holder.kill()
        # Long before the ttl of the holder, which is a minute.
        reply = client.reply()
        assert isinstance(reply, list), reply


def test_the_end_of_a_connection_cancels_its_lock(
    daemon: Daemon, client: Connection, servers: Servers
) -> None:
    lease, _ = client.lock("r")
    waiter = daemon.connect()
    # What is sent behind it is kept, and does not hide the end.
    waiter.send("LOCK", "r", "WAIT", "FOREVER")
    waiter.send("LOCK", "s", "WAIT", "FOREVER")
    daemon.wait_until_waiting()
    waiter.close()
    wait_until(lambda: client.status()["connected"] == 1)
    wait_until(lambda: client.status()["stats"]["cancelled"] == 1)
    assert client.ask("UNLOCK", lease) == 1
    client.lock("r", "WAIT", 0)
    assert is_free(servers, "s")


def test_the_id_of_another_connection_is_refused(
    daemon: Daemon, client: Connection, servers: Servers
) -> None:
    lease, _ = client.lock("r")
    with daemon.connect() as other:
        own = other.ask("CLIENT", "ID")
        expected = f"ERR lease {lease} belongs to another connection, and this is connection {own}:"
        for word in ("UNLOCK", "EXTEND", "CHECK", "HEARTBEAT", "DETACH"):
            assert other.error(word, lease).startswith(expected), word
    value = servers[0].command("GET", "r")
    assert value is not None
    wait_until(lambda: is_everywhere(servers, "r", value))
    assert client.ask("UNLOCK", lease) == 1


def test_a_client_that_hangs_loses_its_lease(quorlock: CommandLine, path: Path) -> None:
    options = ["--ttl", "200ms", "--max-hold", "600ms"]
    with Daemon(quorlock, path, *options) as daemon, daemon.connect() as client:
        lease, _ = client.lock("r")
        with daemon.connect() as other:
            other.lock("r", "WAIT", 30000)
        assert client.error("CHECK", lease).startswith("LEASELOST ")


def test_a_short_max_hold_also_limits_the_ttl(quorlock: CommandLine, path: Path) -> None:
    with Daemon(quorlock, path, "--max-hold", "300ms") as daemon, daemon.connect() as client:
        lease, _ = client.lock("r")
        client.lock("s", "TTL", 60000)
        with daemon.connect() as other:
            other.lock("r", "s", "WAIT", 30000)
        assert client.error("CHECK", lease).startswith("LEASELOST ")


def test_pipelined_requests_are_answered_in_order(daemon: Daemon, client: Connection) -> None:
    number = client.ask("CLIENT", "ID")
    with daemon.connect() as other:
        lease, _ = other.lock("r")
        for word in ("a", "b"):
            client.send("ECHO", word)
        client.send("LOCK", "r", "WAIT", "FOREVER")
        client.send("ECHO", "c" * 100_000)
        client.send("CHECK", f"{number}-1")
        assert [client.reply(), client.reply()] == ["a", "b"]
        daemon.wait_until_waiting()
        assert other.ask("UNLOCK", lease) == 1
    locked = client.reply()
    assert isinstance(locked, list)
    assert locked[0] == f"{number}-1"
    assert client.reply() == "c" * 100_000
    assert int(str(client.reply())) > 0


def test_redis_cli_is_a_client(daemon: Daemon, servers: Servers) -> None:
    requests = "LOCK r TTL 30000\nSTATUS r\nNOSUCH\n"
    program = ["redis-cli", "-s", str(daemon.path)]
    try:
        done = subprocess.run(program, input=requests, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        pytest.skip("redis-cli is not installed")
    lines = done.stdout.split("\n")
    assert lines[0].endswith("-1")
    assert json.loads(lines[3])[0]["state"] == "held"
    assert lines[4] == "ERR unknown command 'NOSUCH'"
    done = subprocess.run([*program, "-3", "LOCK", "r"], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0].endswith("-1")
    wait_until(lambda: keys(servers) == [])


@every_installation
def test_all_installations_serve_the_same_protocol(quorlock: CommandLine, path: Path) -> None:
    with Daemon(quorlock, path) as daemon, daemon.connect() as client:
        lease, _ = client.lock("r")
        daemon.process.send_signal(signal.SIGINT)
        wait_until(lambda: client.status()["is_draining"] is True)
        lost = client.error("LOCK", "s")
        assert lost == "CLOSED the daemon is about to end"
        assert client.ask("UNLOCK", lease) == 1
        assert client.is_closed()
        assert daemon.process.wait() == 0


def test_a_reply_error_is_one_line(client: Connection) -> None:
    with pytest.raises(ServerReplyError, match=r"^ERR unknown command 'a\\r\\nb'$"):
        client.ask("a\r\nb")


def test_the_program_is_the_one_that_was_built() -> None:
    done = subprocess.run([cargo_program(), "serve", "--help"], capture_output=True, text=True)
    assert "--max-leases" in done.stdout
