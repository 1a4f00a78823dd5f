"""The tools that other tests rely on: tests/servers.py and tests/proxy.py."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import proxy as proxy_module
import pytest
import servers as servers_module
from fleet import server as server_module
from proxy import Mode, Proxy
from servers import (
    Argument,
    Reply,
    Server,
    ServerError,
    ServerReplyError,
    Servers,
    encode_command,
    read_reply,
)

Start = Callable[..., Servers]

TOOLS = Path(servers_module.__file__).parent
DEADLINE = 60.0


def wait_until(condition: Callable[[], object]) -> None:
    """Returns when the condition is true. Fails after a minute."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.005)


def state(pid: int) -> str:
    """Returns the state of a process as shown by `ps`; an empty string if there is none."""
    command = ["ps", "-o", "state=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout[:1]


def gone(pids: list[int]) -> bool:
    """Returns whether none of the processes is running."""
    return all(state(pid) in ("", "Z") for pid in pids)


def clients(server: Server) -> int:
    """Returns the number of clients of the server, including the connection of this request."""
    return len(str(server.command("CLIENT", "LIST")).splitlines())


class Connection:
    """A client connection that stays open."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), DEADLINE)
        self.reader = self.socket.makefile("rb")

    def send(self, *args: Argument) -> None:
        self.socket.sendall(encode_command(*args))

    def reply(self) -> Reply:
        return read_reply(self.reader)

    def call(self, *args: Argument) -> Reply:
        self.send(*args)
        return self.reply()

    def at_end(self) -> bool:
        """Waits for a byte or the end of the connection. Returns whether the connection ended."""
        try:
            return self.reader.read(1) == b""
        except ConnectionError:
            return True

    def silent(self) -> bool:
        """Returns whether nothing arrives for 50 ms, not even the end of the connection."""
        self.socket.settimeout(0.05)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(DEADLINE)
        return False

    def close(self) -> None:
        self.reader.close()
        self.socket.close()


@pytest.fixture
def connect() -> Iterator[Callable[[int], Connection]]:
    """`connect(port)` opens a connection that is closed at the end of the test."""
    with contextlib.ExitStack() as stack:

        def open_connection(port: int) -> Connection:
            connection = Connection(port)
            stack.callback(connection.close)
            return connection

        yield open_connection


Connect = Callable[[int], Connection]


@pytest.fixture
def temporary_directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes the test create its temporary files in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="quorlock-") as directory:
        monkeypatch.setenv("TMPDIR", directory)
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield


@pytest.fixture
def server(start_servers: Start) -> Server:
    """One server."""
    return start_servers(1)[0]


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """A proxy in front of `server`."""
    with Proxy(server.port) as proxy:
        yield proxy


# --- Servers ---


def test_servers_start_empty_and_independent(start_servers: Start) -> None:
    servers = start_servers(5)

    assert servers.urls == [f"redis://127.0.0.1:{server.port}" for server in servers]
    assert len(servers) == len(set(servers.urls)) == len({server.pid for server in servers}) == 5
    for server in servers:
        assert server.command("DBSIZE") == 0
    servers[0].command("SET", "a", "1")
    assert [server.command("DBSIZE") for server in servers] == [1, 0, 0, 0, 0]


def test_command_returns_every_kind_of_reply(server: Server) -> None:
    assert server.command("SET", "a", "1") == "OK"
    assert server.command("GET", "a") == "1"
    assert server.command("INCRBY", b"a", 2) == 3
    assert server.command("GET", "missing") is None
    assert server.command("MGET", "a", "missing") == ["3", None]
    assert server.command("EVAL", "return {1, {'a', {}}}", 0) == [1, ["a", []]]
    assert server.command("BLPOP", "missing", 0.01) is None
    server.command("SET", "text", "grüße\r\n")
    assert server.command("GET", "text") == "grüße\r\n"
    with pytest.raises(ServerReplyError, match=r"^ERR unknown command"):
        server.command("NONSENSE")


def test_frozen_server_answers_nothing_until_it_is_thawed(start_servers: Start) -> None:
    servers = start_servers(2)

    servers[0].freeze()
    servers[0].freeze()
    assert state(servers[0].pid) == "T"
    assert servers[0].running
    with pytest.raises(TimeoutError):
        servers[0].command("SET", "a", "1", timeout=0.1)
    assert servers[1].command("PING") == "PONG"

    servers[0].thaw()
    assert servers[0].command("PING") == "PONG"
    wait_until(lambda: servers[0].command("GET", "a") == "1")

    for _ in range(20):
        servers[0].freeze()
        assert state(servers[0].pid) == "T"
        servers[0].thaw()


@pytest.mark.parametrize("frozen", [False, True])
def test_a_killed_server_is_gone_and_the_others_run(start_servers: Start, frozen: bool) -> None:
    servers = start_servers(2)
    pid = servers[0].pid
    if frozen:
        servers[0].freeze()

    servers[0].kill()
    servers[0].kill()

    assert not servers[0].running
    assert state(pid) == ""
    with pytest.raises(ConnectionRefusedError):
        servers[0].command("PING")
    with pytest.raises(ServerError, match="not running"):
        servers[0].freeze()
    assert servers[1].command("PING") == "PONG"


@pytest.mark.parametrize("frozen", [False, True])
def test_stop_saves_what_kill_loses(start_servers: Start, frozen: bool) -> None:
    server = start_servers(1, args=["--save", "3600 1"])[0]
    for end, kept in [(server.kill, None), (server.stop, "1")]:
        server.command("SET", "a", "1")
        if frozen:
            server.freeze()
        end()
        assert state(server.pid) == ""
        server.restart()
        assert server.command("GET", "a") == kept
    server.stop()
    server.stop()


@pytest.mark.parametrize("before", ["running", "frozen", "killed"])
def test_restart_keeps_only_the_port(start_servers: Start, before: str) -> None:
    server = start_servers(1)[0]
    port, pid = server.port, server.pid
    server.command("SET", "a", "1")
    if before == "frozen":
        server.freeze()
    if before == "killed":
        server.kill()

    server.restart()

    assert server.port == port
    assert server.pid != pid
    assert state(pid) == ""
    assert server.command("DBSIZE") == 0


def test_restart_with_persistence_keeps_the_data(start_servers: Start) -> None:
    server = start_servers(1, args=["--appendonly", "yes", "--appendfsync", "always"])[0]
    server.command("SET", "a", "1")
    server.restart()
    assert server.command("GET", "a") == "1"


def test_a_server_with_many_clients_can_be_restarted(server: Server, connect: Connect) -> None:
    for _ in range(10):
        clients = [connect(server.port) for _ in range(20)]
        for client in clients:
            assert client.call("PING") == "PONG"
        server.restart()
        for client in clients:
            assert client.at_end()


def test_restart_waits_for_its_port(server: Server) -> None:
    server.kill()
    with socket.create_server(("127.0.0.1", server.port)):
        restart = threading.Thread(target=server.restart)
        restart.start()
        wait_until(lambda: b"Address already in use" in server.log_path.read_bytes())
        assert restart.is_alive()
    restart.join(DEADLINE)
    assert server.command("PING") == "PONG"


@pytest.mark.skipif(sys.platform != "linux", reason="the port cannot be reserved")
def test_the_port_of_a_killed_server_stays_reserved(server: Server) -> None:
    server.kill()
    with socket.socket() as other, pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE)):
        other.bind(("127.0.0.1", server.port))


def test_start_moves_to_another_port_if_one_is_taken(
    start_servers: Start, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve_port = server_module.reserve_port
    taken = [(server.port, socket.socket())] * 2

    def reserve(host: str) -> tuple[int, socket.socket]:
        return taken.pop() if taken else reserve_port(host)

    monkeypatch.setattr(server_module, "reserve_port", reserve)
    servers = start_servers(2)

    assert not taken
    assert len({server.port, *(other.port for other in servers)}) == 3
    assert [other.command("PING") for other in servers] == ["PONG", "PONG"]


def test_a_server_with_a_password_requires_it(start_servers: Start) -> None:
    servers = start_servers(1, password="p@ss/word")
    assert servers.urls == [f"redis://:p%40ss%2Fword@127.0.0.1:{servers[0].port}"]
    assert servers.proxy(0).url.startswith("redis://:p%40ss%2Fword@127.0.0.1:")
    assert servers[0].command("PING") == "PONG"
    with contextlib.closing(Connection(servers[0].port)) as stranger:
        with pytest.raises(ServerReplyError, match="NOAUTH"):
            stranger.call("PING")
        assert stranger.call("AUTH", "p@ss/word") == "OK"
        assert stranger.call("PING") == "PONG"


def test_a_server_can_listen_on_a_unix_socket(start_servers: Start) -> None:
    server = start_servers(1, unix_socket=True)[0]
    assert server.url.startswith("unix:///")
    for _ in range(2):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(server.url.removeprefix("unix://"))
            client.sendall(encode_command("PING"))
            assert client.recv(100) == b"+PONG\r\n"
        server.restart()
    assert start_servers(1, unix_socket=True, password="a&b")[0].url.endswith("?pass=a%26b")


def test_a_missing_server_program_is_an_error_with_advice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("REDIS_SERVER", raising=False)
    with pytest.raises(ServerError, match="apt install redis-server"):
        Servers(1)
    monkeypatch.setenv("REDIS_SERVER", "/nowhere/redis")
    with pytest.raises(ServerError, match=r"REDIS_SERVER.*/nowhere/redis"):
        Servers(1)


def test_the_server_program_is_searched_in_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    programs = [tmp_path / name for name in ("valkey-server", "redis-server", "mine")]
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("REDIS_SERVER", raising=False)
    for program in programs:
        program.touch(mode=0o755)
        if program.name == "mine":
            monkeypatch.setenv("REDIS_SERVER", str(program))
        assert servers_module.find_binary() == str(program)


@pytest.mark.usefixtures("temporary_directory")
def test_server_that_does_not_start_is_reported_with_its_log(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ServerError, match="no-such-option"):
        Servers(2, args=["--no-such-option", "1"])
    directory = Path(capfd.readouterr().err.split()[-1])
    assert "no-such-option" in (directory / "0" / "server.log").read_text()


@pytest.mark.usefixtures("temporary_directory")
def test_logs_are_kept_on_failure_only(capfd: pytest.CaptureFixture[str]) -> None:
    with Servers(1) as servers:
        log_path = servers[0].log_path
        assert "Ready to accept connections" in log_path.read_text()
    assert not log_path.parent.parent.exists()

    servers = Servers(1)
    log_path = servers[0].log_path
    servers[0].restart()
    with pytest.raises(ZeroDivisionError), servers:
        raise ZeroDivisionError
    assert log_path.read_text().count("Ready to accept connections") == 2

    with Servers(1) as servers:
        directory = servers.keep_logs()
    servers.close()
    assert (directory / "0" / "server.log").exists()
    assert capfd.readouterr().err.count(str(directory)) == 1


# --- All processes end with their owner ---


def test_close_leaves_no_process() -> None:
    with Servers(3) as servers:
        pids = [servers._watchdog.pid, *(server.pid for server in servers)]
        servers[0].freeze()
        servers[1].kill()
    assert [state(pid) for pid in pids] == [""] * 4


def run_python(code: str) -> subprocess.Popen[str]:
    """Runs a script that defines `servers`, prints their process ids as a JSON list, and waits."""
    start = "import json, os, signal, sys, threading, time\nfrom servers import *\n"
    show = "\nprint(json.dumps([s.pid for s in servers] + [servers._watchdog.pid]), flush=True)"
    return subprocess.Popen(
        [sys.executable, "-c", start + code + show + "\ntime.sleep(600)"],
        env={**os.environ, "PYTHONPATH": str(TOOLS)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.usefixtures("temporary_directory")
@pytest.mark.parametrize(
    "code",
    [
        "servers = Servers(3)",
        "servers = Servers(3); servers[1].freeze()",
        "servers = Servers(3); servers[1].freeze(); servers[0].restart(); servers[2].kill()",
        # The forked child survives its parent, and keeps its copy of the pipe to the watchdog open.
        (
            "servers = Servers(3); servers[1].freeze()\n"
            "if os.fork() == 0: sys.stdin.read(); os._exit(0)"
        ),
    ],
    ids=["running", "frozen", "restarted", "forked"],
)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_servers_end_when_their_owner_is_killed(code: str, number: int) -> None:
    with run_python(code) as owner:
        assert owner.stdout is not None
        pids = json.loads(owner.stdout.readline())
        assert len(pids) == 4
        owner.send_signal(number)
        owner.wait(DEADLINE)
        wait_until(lambda: gone(pids))
        # Leaving the block closes stdin, which ends the forked child.


@pytest.mark.usefixtures("temporary_directory")
def test_servers_end_with_an_owner_that_does_not_close_them() -> None:
    with run_python("servers = Servers(2); servers[1].freeze(); time.sleep = id") as owner:
        output, _ = owner.communicate(timeout=DEADLINE)
    assert owner.returncode == 0
    wait_until(lambda: gone(json.loads(output)))


def test_servers_survive_the_thread_that_started_them() -> None:
    started: list[Servers] = []
    thread = threading.Thread(target=lambda: started.append(Servers(2)))
    thread.start()
    thread.join()
    with started[0] as servers:
        assert [server.command("PING") for server in servers] == ["PONG", "PONG"]
        thread = threading.Thread(target=servers[0].restart)
        thread.start()
        thread.join()
        assert [server.command("PING") for server in servers] == ["PONG", "PONG"]


def test_forked_child_does_not_close_the_servers_of_its_parent(server: Server) -> None:
    code = (
        "servers = Servers(1)\n"
        "child = os.fork()\n"
        "servers.close() if child == 0 else os.waitpid(child, 0)\n"
        "if child == 0: os._exit(0)\n"
        "assert servers[0].command('PING') == 'PONG'\n"
        "servers.close(); time.sleep = id"
    )
    with run_python(code) as owner:
        owner.communicate(timeout=DEADLINE)
    assert owner.returncode == 0


# --- The program ---


class Program:
    """A running `python3 tests/servers.py`."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(TOOLS / "servers.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin: IO[str] = self.process.stdin
        self.stdout: IO[str] = self.process.stdout

    def ask_line(self, line: str) -> dict[str, Any]:
        self.stdin.write(line + "\n")
        self.stdin.flush()
        answer: dict[str, Any] = json.loads(self.stdout.readline())
        return answer

    def ask(self, **request: object) -> Any:
        answer = self.ask_line(json.dumps(request))
        assert list(answer) == ["ok"], answer
        return answer["ok"]

    def error(self, **request: object) -> str:
        answer = self.ask_line(json.dumps(request))
        assert list(answer) == ["error"], answer
        return str(answer["error"])


@pytest.fixture
def program(temporary_directory: None) -> Iterator[Program]:
    """A running program, which is killed at the end of the test."""
    program = Program()
    with program.process:
        yield program
        program.process.kill()


def test_program_controls_servers(program: Program) -> None:
    servers = program.ask(start=3, args=["--databases", "2"], password=None)
    assert [sorted(server) for server in servers] == [["pid", "port", "url"]] * 3

    assert program.ask(command=[1, "SET", "a", "1"]) == "OK"
    assert program.ask(command=[1, "MGET", "a", "b"]) == ["1", None]
    assert program.ask(command=[1, "CONFIG", "GET", "databases"]) == ["databases", "2"]
    assert program.ask(freeze=2) is None
    assert state(servers[2]["pid"]) == "T"
    assert program.ask(thaw=2) is None
    assert program.ask(command=[2, "PING"]) == "PONG"
    assert program.ask(kill=1) is None
    assert state(servers[1]["pid"]) == ""
    restarted = program.ask(restart=1)
    assert restarted["url"] == servers[1]["url"]
    assert restarted["pid"] != servers[1]["pid"]
    assert program.ask(command=[1, "GET", "a"]) is None

    assert program.ask(stop=True) is None
    assert program.process.wait(DEADLINE) == 0
    assert gone([server["pid"] for server in [*servers, restarted]])


def test_program_controls_proxies(program: Program, connect: Connect) -> None:
    program.ask(start=2, password="secret")
    for number in range(2):
        proxy = program.ask(proxy=number)
        assert proxy["id"] == number
        assert proxy["url"] == f"redis://:secret@127.0.0.1:{proxy['port']}"

    client = connect(proxy["port"])
    assert client.call("AUTH", "secret") == "OK"
    assert program.ask(proxy_delay=[1, 0.1]) is None
    assert client.call("PING") == "PONG"
    assert program.ask(proxy_mode=[1, "lose_reply"]) is None
    client.send("SET", "a", "1")
    assert client.at_end()
    assert program.ask(command=[1, "GET", "a"]) == "1"
    assert program.ask(proxy_stats=1) == {
        "mode": "pass",
        "connections": 0,
        "bytes_up": len(encode_command("AUTH", "secret"))
        + len(encode_command("PING"))
        + len(encode_command("SET", "a", "1")),
        "replies_lost": 1,
    }


def test_program_reports_errors_and_continues(program: Program) -> None:
    assert "no servers were started" in program.error(freeze=0)
    assert "JSONDecodeError" in program.ask_line("nonsense")["error"]
    assert "unknown command" in program.error(melt=0)
    assert "unknown command" in program.ask_line("[]")["error"]
    assert "TypeError" in program.error(start=1, no_such_option=1)
    assert "no-such-option" in program.error(start=1, args=["--no-such-option", "1"])
    program.ask(start=1)
    assert "already" in program.error(start=1)
    assert "IndexError" in program.error(freeze=1)
    assert "ServerReplyError: ERR" in program.error(command=[0, "NONSENSE"])
    program.ask(proxy=0)
    assert "melt" in program.error(proxy_mode=[0, "melt"])
    program.ask(kill=0)
    assert "not running" in program.error(thaw=0)
    assert "ConnectionRefusedError" in program.error(command=[0, "PING"])
    program.ask(restart=0)
    assert program.ask(command=[0, "PING"]) == "PONG"


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("end", ["stop", "eof", "SIGTERM", "SIGINT", "SIGKILL"])
def test_program_leaves_nothing_behind(program: Program, end: str, keep: bool) -> None:
    pids = [server["pid"] for server in program.ask(start=2, args=["--logfile", ""])]
    directory = Path(program.ask(command=[0, "CONFIG", "GET", "dir"])[1]).parent
    program.ask(proxy=0)
    program.ask(freeze=1)
    if keep:
        assert program.ask(keep_logs=True) == str(directory)

    if end == "stop":
        program.ask(stop=True)
        assert gone(pids)
    elif end == "eof":
        program.stdin.close()
    else:
        program.process.send_signal(signal.Signals[end])
    program.process.wait(DEADLINE)

    wait_until(lambda: gone(pids))
    if end != "SIGKILL":
        assert directory.exists() == keep


# --- Proxy ---


def mode_of(proxy: Proxy) -> Mode:
    """Returns the mode. On a direct read, type checkers would assume the value last assigned."""
    return proxy.mode


def test_proxy_forwards_and_counts_traffic(proxy: Proxy, connect: Connect) -> None:
    assert proxy.url == f"redis://127.0.0.1:{proxy.port}"
    assert (proxy.mode, proxy.connections, proxy.bytes_up) == ("pass", 0, 0)

    clients = [connect(proxy.port) for _ in range(3)]
    for index, client in enumerate(clients):
        assert client.call("SET", "a", index) == "OK"
        assert client.call("GET", "a") == str(index)
    assert proxy.connections == 3
    size = len(encode_command("SET", "a", "0")) + len(encode_command("GET", "a"))
    assert proxy.bytes_up == 3 * size

    clients[0].close()
    wait_until(lambda: proxy.connections == 2)
    assert proxy.replies_lost == 0


def test_proxy_forwards_large_messages_and_every_type(proxy: Proxy, connect: Connect) -> None:
    client = connect(proxy.port)
    large = "x\r\n" * 1_000_000
    assert client.call("SET", "a", large) == "OK"
    assert client.call("GET", "a") == large
    client.send("EVAL", "return {1, 'a', {}, {false, {err='E'}}, redis.status_reply('S')}", 0)
    client.send("HELLO", "3")
    client.send("HGETALL", "missing")
    client.send("GET", "missing")
    client.send("EVAL", "redis.setresp(3); return {double=1.5}", 0)
    client.socket.sendall(b"PING\r\n")
    expected = b"*5\r\n:1\r\n$1\r\na\r\n*0\r\n*2\r\n$-1\r\n-E\r\n+S\r\n"
    assert client.reader.read(len(expected)) == expected
    assert client.reader.read(4) == b"%7\r\n"
    while client.reader.readline() != b"modules\r\n":
        pass
    expected = b"*0\r\n%0\r\n_\r\n,1.5\r\n+PONG\r\n"
    assert client.reader.read(len(expected)) == expected


@pytest.mark.parametrize(
    "message",
    [
        b"+OK\r\n",
        b"$5\r\na\r\nbc\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"*2\r\n*1\r\n$0\r\n\r\n:1\r\n",
        b"%1\r\n+a\r\n~1\r\n#t\r\n",
        b"|1\r\n+ttl\r\n:1\r\n=5\r\ntxt:a\r\n",
        b">2\r\n+invalidate\r\n_\r\n",
    ],
)
def test_proxy_finds_the_end_of_every_message(message: bytes) -> None:
    for size in range(len(message)):
        assert proxy_module._message_end(message[:size], 0) is None
    assert proxy_module._message_end(b"+1\r\n" + message + b"+2\r\n", 4) == 4 + len(message)


def test_proxy_drop_replies_executes_commands_and_drops_their_replies(
    server: Server, proxy: Proxy, connect: Connect
) -> None:
    old, unaffected = connect(proxy.port), connect(proxy.port)
    assert old.call("PING") == unaffected.call("PING") == "PONG"

    proxy.mode = "drop_replies"
    old.send("SET", "a", "1")
    new = connect(proxy.port)
    new.send("SET", "b", "1")
    wait_until(lambda: proxy.replies_lost == 2)
    assert server.command("MGET", "a", "b") == ["1", "1"]
    assert old.silent()
    assert new.silent()
    assert proxy.connections == 3

    proxy.mode = "pass"
    assert old.at_end()
    assert new.at_end()
    assert unaffected.call("PING") == "PONG"
    assert connect(proxy.port).call("GET", "a") == "1"
    assert proxy.connections == 2


def test_proxy_lose_reply_drops_one_reply_and_its_connection(
    server: Server, proxy: Proxy, connect: Connect
) -> None:
    victim, other = connect(proxy.port), connect(proxy.port)
    assert victim.call("PING") == other.call("PING") == "PONG"

    proxy.mode = "lose_reply"
    victim.send("SET", "a", "1")
    assert victim.at_end()

    assert mode_of(proxy) == "pass"
    assert proxy.replies_lost == 1
    assert server.command("GET", "a") == "1"
    assert other.call("GET", "a") == "1"
    assert proxy.connections == 1
    wait_until(lambda: clients(server) == 2)  # `other` and the connection of this request


def test_proxy_lose_reply_spares_earlier_commands(
    server: Server, proxy: Proxy, connect: Connect
) -> None:
    client = connect(proxy.port)
    server.freeze()
    client.send("INCR", "a")
    client.send("INCR", "a")
    wait_until(lambda: proxy.bytes_up == 2 * len(encode_command("INCR", "a")))
    proxy.mode = "lose_reply"
    for _ in range(3):
        client.send("INCR", "a")
    wait_until(lambda: proxy.bytes_up == 5 * len(encode_command("INCR", "a")))
    assert mode_of(proxy) == "lose_reply"
    server.thaw()

    assert [client.reply(), client.reply()] == [1, 2]
    assert client.at_end()
    assert mode_of(proxy) == "pass"
    wait_until(lambda: server.command("GET", "a") == "5")


def test_proxy_lose_reply_ignores_push_messages(
    server: Server, proxy: Proxy, connect: Connect
) -> None:
    old, resp3 = connect(proxy.port), connect(proxy.port)
    resp3.send("HELLO", "3")
    while resp3.reader.readline() != b"modules\r\n":
        pass
    assert resp3.reader.readline() == b"*0\r\n"
    resp3.send("CLIENT", "TRACKING", "ON")
    resp3.send("GET", "key")
    assert resp3.reader.read(len(b"+OK\r\n_\r\n")) == b"+OK\r\n_\r\n"

    proxy.mode = "lose_reply"
    assert old.call("SUBSCRIBE", "x", "y") == ["subscribe", "x", 1]
    assert old.reply() == ["subscribe", "y", 2]
    resp3.send("SUBSCRIBE", "x")
    expected = b">3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n"
    assert resp3.reader.read(len(expected)) == expected
    server.command("PUBLISH", "x", "hello")
    assert old.reply() == ["message", "x", "hello"]
    expected = b">3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$5\r\nhello\r\n"
    assert resp3.reader.read(len(expected)) == expected
    assert mode_of(proxy) == "lose_reply"

    resp3.send("BLPOP", "list", 0)
    wait_until(lambda: "cmd=blpop" in str(server.command("CLIENT", "LIST")))
    server.command("SET", "key", "1")
    expected = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$3\r\nkey\r\n"
    assert resp3.reader.read(len(expected)) == expected
    assert mode_of(proxy) == "lose_reply"
    server.command("RPUSH", "list", "1")
    assert resp3.at_end()
    assert mode_of(proxy) == "pass"
    assert old.call("UNSUBSCRIBE", "x") == ["unsubscribe", "x", 1]


def test_proxy_hold_delays_commands(server: Server, proxy: Proxy, connect: Connect) -> None:
    old = connect(proxy.port)
    assert old.call("PING") == "PONG"
    before = proxy.bytes_up

    proxy.mode = "hold"
    old.send("SET", "a", "1")
    new = connect(proxy.port)
    new.send("SET", "b", "1")
    assert old.silent()
    assert new.silent()
    assert server.command("DBSIZE") == 0
    assert proxy.bytes_up == before

    proxy.mode = "pass"
    assert old.reply() == new.reply() == "OK"
    assert server.command("DBSIZE") == 2


def test_proxy_hold_delays_replies(server: Server, proxy: Proxy, connect: Connect) -> None:
    client = connect(proxy.port)
    client.send("BLPOP", "list", 0)
    wait_until(lambda: "cmd=blpop" in str(server.command("CLIENT", "LIST")))
    proxy.mode = "hold"
    server.command("RPUSH", "list", "1")
    wait_until(lambda: server.command("LLEN", "list") == 0)
    assert client.silent()
    proxy.mode = "pass"
    assert client.reply() == ["list", "1"]


def test_proxy_hold_delivers_commands_of_clients_that_have_disconnected(
    server: Server, proxy: Proxy, connect: Connect
) -> None:
    proxy.mode = "hold"
    client = connect(proxy.port)
    client.send("SET", "a", "1")
    wait_until(lambda: proxy.connections == 1)
    client.close()
    wait_until(lambda: proxy.connections == 0)
    assert server.command("GET", "a") is None
    proxy.mode = "pass"
    wait_until(lambda: server.command("GET", "a") == "1")
    wait_until(lambda: clients(server) == 1)


def test_proxy_hold_hides_that_the_server_was_killed(
    server: Server, proxy: Proxy, connect: Connect
) -> None:
    client = connect(proxy.port)
    assert client.call("PING") == "PONG"
    proxy.mode = "hold"
    server.kill()
    new = connect(proxy.port)
    assert client.silent()
    assert new.silent()
    proxy.mode = "pass"
    assert client.at_end()
    assert new.at_end()


def test_proxy_hold_commands_forwards_replies(
    server: Server, proxy: Proxy, connect: Connect
) -> None:
    client = connect(proxy.port)
    client.send("BLPOP", "list", 0)
    wait_until(lambda: "cmd=blpop" in str(server.command("CLIENT", "LIST")))

    proxy.mode = "hold_commands"
    server.command("RPUSH", "list", "1")
    assert client.reply() == ["list", "1"]
    client.send("SET", "a", "1")
    new = connect(proxy.port)
    new.send("SET", "b", "1")
    assert client.silent()
    assert new.silent()
    assert server.command("DBSIZE") == 0

    proxy.mode = "pass"
    assert client.reply() == new.reply() == "OK"
    assert server.command("DBSIZE") == 2


def test_proxy_hold_replies_forwards_commands(
    server: Server, proxy: Proxy, connect: Connect
) -> None:
    client = connect(proxy.port)
    assert client.call("PING") == "PONG"

    proxy.mode = "hold_replies"
    client.send("SET", "a", "1")
    new = connect(proxy.port)
    new.send("SET", "b", "1")
    wait_until(lambda: server.command("DBSIZE") == 2)
    server.kill()
    assert client.silent()
    assert new.silent()

    proxy.mode = "pass"
    assert client.reply() == new.reply() == "OK"
    assert client.at_end()
    assert new.at_end()


def test_proxy_can_hold_a_command_and_then_lose_its_reply(
    server: Server, proxy: Proxy, connect: Connect
) -> None:
    client = connect(proxy.port)
    proxy.mode = "hold"
    client.send("SET", "a", "1")
    proxy.mode = "lose_reply"
    assert client.at_end()
    assert server.command("GET", "a") == "1"


def test_proxy_refuse_closes_old_and_new_connections(
    server: Server, proxy: Proxy, connect: Connect
) -> None:
    old = connect(proxy.port)
    assert old.call("PING") == "PONG"
    proxy.mode = "refuse"
    assert old.at_end()
    assert connect(proxy.port).at_end()
    assert proxy.connections == 0
    wait_until(lambda: clients(server) == 1)
    proxy.mode = "pass"
    assert connect(proxy.port).call("PING") == "PONG"


def test_proxy_cut_closes_connections_and_accepts_new_ones(
    server: Server, proxy: Proxy, connect: Connect
) -> None:
    old, other = connect(proxy.port), connect(proxy.port)
    assert old.call("PING") == other.call("PING") == "PONG"
    proxy.cut()
    assert old.at_end()
    assert other.at_end()
    assert proxy.connections == 0
    assert connect(proxy.port).call("PING") == "PONG"
    wait_until(lambda: clients(server) == 2)  # the new one and the connection of this request


def test_proxy_delays_replies_independently(proxy: Proxy, connect: Connect) -> None:
    client = connect(proxy.port)
    assert client.call("SET", "a", 0) == "OK"
    proxy.delay = 0.5
    start = time.monotonic()
    for _ in range(100):
        client.send("INCR", "a")
    assert client.reply() == 1
    assert time.monotonic() - start >= 0.49
    assert [client.reply() for _ in range(99)] == list(range(2, 101))
    assert time.monotonic() - start < 100 * 0.5 / 2
    proxy.delay = 0
    assert client.call("PING") == "PONG"


def test_proxy_closes_connections_while_the_server_is_down(
    server: Server, proxy: Proxy, connect: Connect
) -> None:
    client = connect(proxy.port)
    assert client.call("PING") == "PONG"
    server.kill()
    assert client.at_end()
    assert connect(proxy.port).at_end()
    server.restart()
    assert connect(proxy.port).call("PING") == "PONG"


def test_proxy_close_ends_connections_and_threads(server: Server, connect: Connect) -> None:
    threads = threading.active_count()
    with Proxy(server.port) as proxy:
        clients = [connect(proxy.port) for _ in range(3)]
        assert [client.call("PING") for client in clients] == ["PONG"] * 3
        server.freeze()
        clients[0].send("PING")
        clients[1].close()
        wait_until(lambda: proxy.connections == 2)
        proxy.mode = "hold"
    proxy.close()

    assert threading.active_count() == threads
    assert clients[0].at_end()
    assert clients[2].at_end()
    with pytest.raises(ConnectionRefusedError):
        Connection(proxy.port)
    with pytest.raises(RuntimeError, match="closed"):
        proxy.mode = "pass"
    with pytest.raises(RuntimeError, match="closed"):
        proxy.cut()


def test_proxies_are_closed_with_their_servers() -> None:
    threads = threading.active_count()
    with Servers(2) as servers:
        proxies = [servers.proxy(index) for index in range(2)]
        assert servers.proxies == proxies
        with contextlib.closing(Connection(proxies[1].port)) as client:
            assert client.call("PING") == "PONG"
    assert threading.active_count() == threads


def test_proxy_rejects_unknown_modes(proxy: Proxy) -> None:
    with pytest.raises(ValueError, match=r"melt.*drop_replies"):
        proxy.mode = "melt"  # type: ignore[assignment]
