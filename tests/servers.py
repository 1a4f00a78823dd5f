"""Real Redis (or Valkey) servers for the tests of every language: start, freeze, kill, restart.

As a library:

    with Servers(5) as servers:
        client = connect(servers.urls)
        servers[0].freeze()
        servers[1].kill()
        assert servers[2].command("GET", "key") == "value"

As a program, `python3 tests/servers.py` reads one JSON object per line on stdin and answers each
with one JSON line on stdout, {"ok": result} or {"error": "why"}:

    {"start": 5}                           [{"url": ..., "port": ..., "pid": ...}, ...]; options:
                                           "args": [...], "password": "...", "unix_socket": true,
                                           "environment": {...}
    {"freeze": 2} {"thaw": 2} {"kill": 2}  null
    {"restart": 2}                         {"url": ..., "port": ..., "pid": ...}
    {"command": [2, "GET", "key"]}         the reply
    {"proxy": 2}                           {"url": ..., "port": ..., "id": 0}: see proxy.py
    {"proxy_mode": [0, "drop_replies"]}    null
    {"proxy_delay": [0, 0.5]}              null, seconds
    {"proxy_stats": 0}                     {"mode", "connections", "bytes_up", "replies_lost"}
    {"keep_logs": true}                    the directory whose logs will not be deleted
    {"stop": true}                         null, when all is cleaned up; then the program ends

The end of stdin, SIGTERM and SIGINT end it as well, and clean everything up.

The server program is $REDIS_SERVER, or else redis-server or valkey-server from the PATH.

No server outlives the process that started it, even if that is killed: all of them are in the
process group of a watchdog, which kills the group (frozen members too) when its parent is gone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NoReturn, Self, TypeAlias
from urllib.parse import quote

from proxy import Proxy, redis_url

Reply: TypeAlias = "str | int | list[Reply] | None"
Argument: TypeAlias = str | bytes | int | float

READY_TIMEOUT = 30.0
"""Seconds a server may take to start, on a machine that is busy with other things."""

# The parent is gone when its end of the pipe is closed. Forked children of it may still have copies
# of that end, which is why the parent's id is watched too. SIGHUP is ignored because the kernel
# sends it to a process group that loses its last parent while one of its members is stopped.
_WATCHDOG = """
import os, select, signal, sys
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
print(flush=True)
while os.getppid() == int(sys.argv[1]) and not select.select([0], [], [], 0.5)[0]:
    pass
os.killpg(0, signal.SIGKILL)
"""


class ServerError(Exception):
    """A server could not be started, or is not running."""


class ServerReplyError(Exception):
    """The server answered a command with an error."""


def find_binary() -> str:
    """The path of the server program."""
    wanted = os.environ.get("REDIS_SERVER")
    for name in [wanted] if wanted else ["redis-server", "valkey-server"]:
        if path := shutil.which(name):
            return path
    if wanted:
        raise ServerError(f"REDIS_SERVER names no program that can be run: {wanted}")
    raise ServerError(
        "neither redis-server nor valkey-server is on the PATH: install Redis or Valkey"
        " (Debian, Ubuntu: apt install redis-server; macOS: brew install redis),"
        " or set REDIS_SERVER to the program's path"
    )


def encode_command(*args: Argument) -> bytes:
    """A command as the server expects it."""
    parts = [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]
    return b"".join(
        [b"*%d\r\n" % len(parts), *(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)]
    )


def read_reply(reader: BinaryIO) -> Reply:
    """The next RESP2 reply; raises ServerReplyError for an error, ConnectionError at the end."""
    line = reader.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionError("the server closed the connection")
    kind, rest = line[:1], line[1:-2].decode(errors="backslashreplace")
    if kind == b"-":
        raise ServerReplyError(rest)
    if kind == b"+":
        return rest
    size = int(rest)
    if kind == b":":
        return size
    if size < 0:
        return None
    if kind == b"*":
        return [read_reply(reader) for _ in range(size)]
    data = reader.read(size + 2)
    if len(data) < size + 2:
        raise ConnectionError("the server closed the connection")
    return data[:-2].decode(errors="backslashreplace")


def reserve_port() -> tuple[int, socket.socket]:
    """A free port, and a socket that keeps others away from it until it is closed.

    The socket is bound and does not listen: clients are refused while the server is down, and Linux
    gives the port to nobody but a server, which like this socket has SO_REUSEADDR. Other systems
    would not let the server in either, so there the port is merely free at this moment.
    """
    reservation = socket.socket()
    reservation.bind(("127.0.0.1", 0))  # without SO_REUSEADDR, so that no port is reserved twice
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port: int = reservation.getsockname()[1]
    if sys.platform != "linux":
        reservation.close()
    return port, reservation


class Server:
    """One server process after another on one port. Made by `Servers`."""

    def __init__(
        self,
        command: Sequence[str],
        directory: Path,
        process_group: int,
        password: str | None,
        unix_socket: bool,
        environment: Mapping[str, str],
    ) -> None:
        directory.mkdir()
        self.log_path = directory / "server.log"
        self._directory = directory
        self._process_group = process_group
        self._password = password
        self._socket_path = directory / "redis.sock" if unix_socket else None
        self._command = list(command)
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self.port, self._reservation = reserve_port()
        """The TCP port, the same for the server's whole life (with a Unix socket, too)."""

    @property
    def url(self) -> str:
        """Where clients connect to: redis://..., or unix://... with `unix_socket`."""
        if self._socket_path is None:
            return redis_url(self.port, self._password)
        query = "" if self._password is None else f"?pass={quote(self._password, safe='')}"
        return f"unix://{self._socket_path}{query}"

    @property
    def pid(self) -> int:
        """The id of the server process, or of the last one after `kill` or `stop`."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether there is a process, frozen or not."""
        return self._process is not None and self._process.poll() is None

    def command(self, *args: Argument, timeout: float = 10.0) -> Reply:
        """Send one command on a connection of its own. Raises OSError, ServerReplyError."""
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout) as connection,
            connection.makefile("rb") as reader,
        ):
            if self._password is not None:
                connection.sendall(encode_command("AUTH", self._password))
                read_reply(reader)
            connection.sendall(encode_command(*args))
            return read_reply(reader)

    def freeze(self) -> None:
        """Stop the process where it is: it keeps its connections and answers nothing."""
        self._signal(signal.SIGSTOP)
        if hasattr(os, "waitid"):  # until all its threads stand still; leaves the status to Popen
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        """Let a frozen server go on. It first answers what it was sent meanwhile."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process the hard way, frozen or not, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """End the process the orderly way (with persistence, it saves), frozen or not."""
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGTERM)
            self._process.send_signal(signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(READY_TIMEOUT)
        self.kill()

    def restart(self) -> None:
        """Start the server again, on the same port; one that still runs is killed first.

        It is empty, unless `args` turned persistence on.
        """
        self.kill()
        self.spawn()
        self.wait_ready()

    def spawn(self) -> None:
        """Start a process (internal)."""
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        places = ["--port", str(self.port), "--dir", str(self._directory)]
        if self._socket_path is not None:
            places += ["--unixsocket", str(self._socket_path)]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [self._command[0], *places, *self._command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=self._process_group,
                env={**os.environ, **self._environment},
            )

    def wait_ready(self, *, may_move: bool = False) -> None:
        """Wait until the process answers (internal).

        If its port is taken, that is tried again, or with `may_move` another port is.
        """
        deadline = time.monotonic() + READY_TIMEOUT
        while not self._answers():
            ended = not self.running  # looked at before the log, which is complete if so
            log = self.log_path.read_bytes()[self._log_start :].decode(errors="replace")
            if time.monotonic() > deadline:
                raise ServerError(f"no answer after {READY_TIMEOUT:g} s: {log}")
            if ended:
                if "Address already in use" not in log:
                    raise ServerError(f"the server ended while it started: {log}")
                if may_move:
                    self.release_port()
                    self.port, self._reservation = reserve_port()
                self.spawn()
            time.sleep(0.01)

    def release_port(self) -> None:
        """Let others have the port (internal)."""
        self._reservation.close()

    def _answers(self) -> bool:
        try:
            ready = self.command("PING", timeout=1) == "PONG"
            info = self.command("INFO", "server", timeout=1)
        except (OSError, ServerReplyError):
            return False
        # A stranger may have taken the port while our process is about to find that out.
        return ready and f"process_id:{self.pid}\r\n" in str(info)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            raise ServerError(f"the server on port {self.port} is not running")
        self._process.send_signal(number)


class Servers:
    """Several empty servers, until `close()` or the end of `with`. None of them knows the others.

    `args` are further arguments for the server program, such as ["--appendonly", "yes"],
    `environment` is what its environment has beside that of this process.
    """

    def __init__(
        self,
        count: int,
        *,
        args: Sequence[str] = (),
        unix_socket: bool = False,
        password: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        command = [find_binary(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        if password is not None:
            command += ["--requirepass", password]
        command += args
        self._owner = os.getpid()
        self._closed = False
        self._servers: list[Server] = []
        self.proxies: list[Proxy] = []
        """The proxies made by `proxy()`."""
        self._logs_wanted = False
        self._directory = Path(tempfile.mkdtemp(prefix="quorlock-"))
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WATCHDOG, str(self._owner)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        )
        try:
            assert self._watchdog.stdout is not None
            if not self._watchdog.stdout.readline():
                raise ServerError("the watchdog did not start")
            for index in range(count):
                directory = self._directory / str(index)
                server = Server(
                    command,
                    directory,
                    self._watchdog.pid,
                    password,
                    unix_socket,
                    environment or {},
                )
                self._servers.append(server)
                server.spawn()
            for server in self._servers:
                server.wait_ready(may_move=True)
        except BaseException as error:
            if isinstance(error, Exception):
                self.keep_logs()
            self.close()
            raise
        self._password = password

    @property
    def process_group(self) -> int:
        """A process that is started in this group ends with the servers, even if it is stopped."""
        return self._watchdog.pid

    @property
    def urls(self) -> list[str]:
        """The URLs of all servers, running or not."""
        return [server.url for server in self._servers]

    def proxy(self, index: int, host: str = "127.0.0.1") -> Proxy:
        """A new proxy in front of a server, closed together with the servers."""
        proxy = Proxy(self._servers[index].port, self._password, host)
        self.proxies.append(proxy)
        return proxy

    def keep_logs(self) -> Path:
        """Do not delete the servers' logs and data in the end, but say on stderr where they are."""
        self._logs_wanted = True
        return self._directory

    def close(self) -> None:
        """End all processes. In a forked child this does nothing: the servers are its parent's."""
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        for proxy in self.proxies:
            proxy.close()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._watchdog.pid, signal.SIGKILL)
        for server in self._servers:
            server.kill()
            server.release_port()
        self._watchdog.communicate()
        if self._logs_wanted:
            print(f"the servers' logs are kept in {self._directory}", file=sys.stderr)
        else:
            shutil.rmtree(self._directory, ignore_errors=True)

    def __len__(self) -> int:
        return len(self._servers)

    def __getitem__(self, index: int) -> Server:
        return self._servers[index]

    def __iter__(self) -> Iterator[Server]:
        return iter(self._servers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is not None:
            self.keep_logs()
        self.close()


class _CommandMode:
    """The commands that the program reads on stdin."""

    def __init__(self) -> None:
        self._started: Servers | None = None
        self.stopped = False

    def answer(self, line: str) -> dict[str, Any]:
        """What to print for this line."""
        try:
            return {"ok": self._run(json.loads(line))}
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}

    def close(self) -> None:
        """End all processes."""
        if self._started is not None:
            self._started.close()

    @property
    def _servers(self) -> Servers:
        if self._started is None:
            raise ServerError("no servers were started yet")
        return self._started

    def _run(self, request: Any) -> object:
        match request:
            case {"start": int(count)}:
                if self._started is not None:
                    raise ServerError("the servers were started already")
                options = {key: value for key, value in request.items() if key != "start"}
                self._started = Servers(count, **options)
                return [_describe(server) for server in self._started]
            case {"freeze": int(index)}:
                self._servers[index].freeze()
            case {"thaw": int(index)}:
                self._servers[index].thaw()
            case {"kill": int(index)}:
                self._servers[index].kill()
            case {"restart": int(index)}:
                self._servers[index].restart()
                return _describe(self._servers[index])
            case {"command": [int(index), *args]}:
                return self._servers[index].command(*args)
            case {"proxy": int(index)}:
                proxy = self._servers.proxy(index)
                number = self._servers.proxies.index(proxy)
                return {"url": proxy.url, "port": proxy.port, "id": number}
            case {"proxy_mode": [int(number), mode]}:
                self._servers.proxies[number].mode = mode
            case {"proxy_delay": [int(number), int(delay) | float(delay)]}:
                self._servers.proxies[number].delay = delay
            case {"proxy_stats": int(number)}:
                names = ["mode", "connections", "bytes_up", "replies_lost"]
                return {name: getattr(self._servers.proxies[number], name) for name in names}
            case {"keep_logs": True}:
                return str(self._servers.keep_logs())
            case {"stop": True}:
                self.close()
                self.stopped = True
            case _:
                raise ServerError(f"unknown command: {json.dumps(request)}")
        return None


def _describe(server: Server) -> dict[str, object]:
    return {"url": server.url, "port": server.port, "pid": server.pid}


def _exit(number: int, frame: object) -> NoReturn:
    sys.exit(128 + number)


def main() -> None:
    """Command mode, see the module's description."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit)
    mode = _CommandMode()
    try:
        for line in sys.stdin:
            print(json.dumps(mode.answer(line)), flush=True)
            if mode.stopped:
                break
    finally:
        mode.close()


if __name__ == "__main__":
    main()
