"""The faults that other tests cause with tests/servers.py and tests/proxy.py. If a fault did
nothing, those tests would pass without it."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest
from proxy import Mode, Proxy
from servers import (
    Argument,
    Cluster,
    Reply,
    Server,
    ServerError,
    ServerReplyError,
    Servers,
    encode_command,
    read_reply,
)
from waiting import TIMEOUT, wait_until


class Connection:
    """A client connection that stays open."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        self.reader = self.socket.makefile("rb")

    def send(self, *command: Argument) -> None:
        with suppress(ConnectionError):
            self.socket.sendall(encode_command(*command))

    def reply(self) -> Reply:
        """Returns the next reply, or "ended" if the connection has ended."""
        try:
            return read_reply(self.reader)
        except ConnectionError:
            return "ended"

    def outcome(self, expected: str) -> Reply:
        """Returns the next reply, "ended", or "silent" if nothing arrives for 0.1 s."""
        self.socket.settimeout(0.1 if expected == "silent" else TIMEOUT)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return "silent"
        except ConnectionError:
            return "ended"
        finally:
            self.socket.settimeout(TIMEOUT)
        return self.reply()

    def close(self) -> None:
        self.reader.close()
        self.socket.close()


@pytest.fixture
def connect() -> Iterator[Callable[[int], Connection]]:
    """`connect(port)` opens a connection that is closed at the end of the test."""
    with ExitStack() as stack:

        def connect(port: int) -> Connection:
            connection = Connection(port)
            stack.callback(connection.close)
            return connection

        yield connect


@pytest.fixture
def server(start_servers: Callable[..., Servers]) -> Server:
    return start_servers(1)[0]


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """A proxy in front of `server`."""
    with Proxy(server.port) as proxy:
        yield proxy


def state(pid: int) -> str:
    """Returns the state of a process as shown by `ps`; an empty string if there is none."""
    command = ["ps", "-o", "state=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout[:1]


def test_a_frozen_server_answers_nothing_until_it_is_thawed(servers: Servers) -> None:
    for _ in range(20):
        servers[0].freeze()
        assert state(servers[0].pid) == "T"
        servers[0].thaw()
    servers[0].freeze()
    with pytest.raises(TimeoutError):
        servers[0].command("SET", "a", "1", timeout=0.1)
    assert servers[1].command("PING") == "PONG"
    servers[0].thaw()
    wait_until(lambda: servers[0].command("GET", "a") == "1")


def test_a_killed_server_is_gone_and_the_others_run(servers: Servers) -> None:
    pid = servers[0].pid
    servers[0].kill()
    assert state(pid) == ""
    with pytest.raises(ConnectionRefusedError):
        servers[0].command("PING")
    with pytest.raises(ServerError, match="not running"):
        servers[0].freeze()
    assert servers[1].command("PING") == "PONG"


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [([], 0), (["--appendonly", "yes", "--appendfsync", "always"], 1)],
    ids=["in memory", "on disk"],
)
def test_a_restart_keeps_only_the_data_on_disk(
    start_servers: Callable[..., Servers], arguments: list[str], kept: int
) -> None:
    server = start_servers(1, args=arguments)[0]
    pid, port = server.pid, server.port
    server.command("SET", "a", "1")
    server.restart()
    assert (server.port, state(pid)) == (port, "")
    assert server.command("EXISTS", "a") == kept


@pytest.mark.parametrize(
    ("mode", "is_executed", "old", "new"),
    [
        ("pass", True, "OK", "OK"),
        ("drop_replies", True, "silent", "silent"),
        ("lose_reply", True, "ended", "OK"),
        ("lose_command", False, "ended", "OK"),
        ("hold", False, "silent", "silent"),
        ("hold_commands", False, "silent", "silent"),
        ("hold_replies", True, "silent", "silent"),
        ("hold_open", False, "silent", "OK"),
        ("refuse", False, "ended", "ended"),
    ],
)
def test_each_mode_of_a_proxy_causes_its_fault(
    server: Server,
    proxy: Proxy,
    connect: Callable[[int], Connection],
    mode: Mode,
    is_executed: bool,
    old: str,
    new: str,
) -> None:
    """`old` and `new` are the outcomes on a connection from before and after the mode was set."""
    client = connect(proxy.port)
    client.send("PING")
    assert client.reply() == "PONG"
    proxy.mode = mode
    client.send("SET", "a", "1")
    assert client.outcome(old) == old
    if is_executed:
        wait_until(lambda: server.command("EXISTS", "a") == 1)
    other = connect(proxy.port)
    other.send("SET", "b", "1")
    assert other.outcome(new) == new
    assert server.command("EXISTS", "a") == is_executed
    proxy.mode = "pass"
    if mode.startswith("hold"):
        assert client.reply() == "OK", "what was held arrives later"


def test_a_proxy_delays_each_reply_and_cuts_connections(
    proxy: Proxy, connect: Callable[[int], Connection]
) -> None:
    client = connect(proxy.port)
    proxy.delay = 0.2
    began = time.monotonic()
    client.send("PING")
    assert client.reply() == "PONG"
    assert time.monotonic() - began >= 0.19
    proxy.cut()
    assert client.reply() == "ended"


def test_a_proxy_refuses_unknown_modes(proxy: Proxy) -> None:
    with pytest.raises(ValueError, match=r"melt.*drop_replies"):
        proxy.mode = "melt"  # type: ignore[assignment]


def test_a_slot_of_a_cluster_moves_in_two_steps() -> None:
    with Cluster() as cluster:
        cluster[2].command("SET", "foo", "1")
        cluster.begin_move("foo", 0)
        assert cluster[2].command("GET", "foo") == "1"
        with pytest.raises(ServerReplyError, match=f"ASK .*:{cluster[0].port}$"):
            cluster[2].command("GET", "{foo}:other")
        cluster.end_move("foo", 0)
        assert cluster[0].command("GET", "foo") == "1"
        with pytest.raises(ServerReplyError, match=f"MOVED .*:{cluster[0].port}$"):
            cluster[2].command("GET", "foo")
