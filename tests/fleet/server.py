"""One server on one port: its process, which can be killed, frozen and started again."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from fleet.errors import ServerError, Unavailable
from fleet.resp import Argument, Reply, ServerReplyError, encode_command, read_reply
from fleet.settings import Settings

READY_TIMEOUT = 30.0
"""The maximum time, in seconds, that a server may take to start, even on a busy machine."""


def find_binary() -> str:
    """Returns the path of the server program."""
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


def reserve_port(host: str = "127.0.0.1") -> tuple[int, socket.socket]:
    """Returns a free port, and a socket that reserves it until the socket is closed.

    The socket is bound and does not listen, so connections are refused while the server is down. On
    Linux, only a socket with SO_REUSEADDR, such as the server's, can then use the port. On other
    systems the server could not use it either, so the port is not reserved, only free for now.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    reservation = socket.socket(family)
    try:
        reservation.bind((host, 0))  # without SO_REUSEADDR, so that no port is reserved twice
    except OSError as error:
        reservation.close()
        if family == socket.AF_INET6:
            raise Unavailable(f"this machine has no IPv6 address {host}: {error}") from None
        raise
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port: int = reservation.getsockname()[1]
    if sys.platform != "linux":
        reservation.close()
    return port, reservation


class Server:
    """A server on one port. Its process can be ended and started again. Created by `Group`."""

    def __init__(self, directory: Path, process_group: int, settings: Settings) -> None:
        directory.mkdir()
        self.log_path = directory / "server.log"
        self.settings = settings
        self._directory = directory
        self._process_group = process_group
        self._command = [find_binary()]
        if settings.config is not None:
            config = directory / "server.conf"
            config.write_text(settings.config)
            self._command.append(str(config))
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self.frozen = False
        """Whether the process is frozen by `freeze`."""
        self._reservations: list[socket.socket] = []
        self.port = self._reserve_port()
        """The TCP port. A restart does not change it. The server listens on it even if clients use
        a Unix socket."""
        self.bus_port = self._reserve_port() if settings.cluster else None
        """The port of the cluster bus."""

    @property
    def url(self) -> str:
        """The URL for clients: redis://..., rediss://..., or with `unix_socket` unix://..."""
        password = self.settings.password
        if self.settings.unix_socket:
            query = "" if password is None else f"?pass={quote(password, safe='')}"
            return f"unix://{self.socket_path}{query}"
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        credentials = "" if password is None else f":{quote(password, safe='')}@"
        scheme = "redis" if self.settings.certificates is None else "rediss"
        return f"{scheme}://{credentials}{host}:{self.port}{self.tls_query}"

    @property
    def tls_query(self) -> str:
        """The URL parameters that name the certificates for this server. Empty without TLS."""
        certificates = self.settings.certificates
        if certificates is None:
            return ""
        query = f"?cacert={certificates.ca}"
        if self.settings.client_certificates:
            query += f"&cert={certificates.client.certificate}&key={certificates.client.key}"
        return query

    @property
    def socket_path(self) -> Path:
        """The path of the Unix socket, which exists only with `unix_socket`."""
        return self._directory / "redis.sock"

    @property
    def pid(self) -> int:
        """The id of the server process. After `kill` or `stop`, the id of the process that was
        ended."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the server's process exists, frozen or not."""
        return self._process is not None and self._process.poll() is None

    def describe(self) -> dict[str, object]:
        """Returns the URL, port, process id and certificates, for tests in other languages."""
        certificates = self.settings.certificates
        return {
            "url": self.url,
            "port": self.port,
            "pid": self.pid,
            **({"socket": str(self.socket_path)} if self.settings.unix_socket else {}),
            **(certificates.describe() if certificates is not None else {}),
        }

    def command(self, *args: Argument, timeout: float = 10.0) -> Reply:
        """Send one command on a new connection. Raises OSError or ServerReplyError."""
        with (
            self._connect(timeout) as connection,
            connection.makefile("rb") as reader,
        ):
            if self.settings.password is not None:
                connection.sendall(encode_command("AUTH", self.settings.password))
                read_reply(reader)
            connection.sendall(encode_command(*args))
            return read_reply(reader)

    def _connect(self, timeout: float) -> socket.socket:
        connection = socket.create_connection((self.settings.host, self.port), timeout)
        certificates = self.settings.certificates
        if certificates is None:
            return connection
        # Accepts any certificate: the tests check how clients handle invalid ones.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(*certificates.client)
        try:
            return context.wrap_socket(connection)
        except BaseException:
            connection.close()
            raise

    def freeze(self) -> None:
        """Suspend the process: it keeps its connections and answers nothing."""
        self._signal(signal.SIGSTOP)
        self.frozen = True
        if hasattr(os, "waitid"):  # waits until all threads are stopped; leaves the status to Popen
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        """Resume a frozen server. It answers the requests that arrived in the meantime."""
        self._signal(signal.SIGCONT)
        self.frozen = False

    def kill(self) -> None:
        """Kill the process with SIGKILL, frozen or not, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Shut the process down with SIGTERM, so that it saves if it has persistence."""
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGTERM)
            self._process.send_signal(signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(READY_TIMEOUT)
        self.kill()

    def restart(self) -> None:
        """Start the server again on the same port. Kills its process first if it is running.

        It is empty, unless `args` turned persistence on.
        """
        self.kill()
        self.spawn()
        self.wait_ready()

    def spawn(self) -> None:
        """Start a process (internal)."""
        self.frozen = False
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        places = ["--dir", str(self._directory)]
        if self.settings.certificates is None:
            places += ["--port", str(self.port)]
        else:
            places += ["--port", "0", "--tls-port", str(self.port)]
        if self.bus_port is not None:
            places += ["--cluster-enabled", "yes", "--cluster-port", str(self.bus_port)]
        if self.settings.unix_socket:
            places += ["--unixsocket", str(self.socket_path)]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *places, *self.settings.arguments()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=self._process_group,
                env={**os.environ, **self.settings.environment},
            )

    def wait_ready(self, *, may_move: bool = False) -> None:
        """Wait until the process answers (internal).

        If the port is in use, restarts the process, on another port if `may_move`.
        """
        deadline = time.monotonic() + READY_TIMEOUT
        while not self._answers():
            # Check this before reading the log, so that the log of an ended process is complete.
            ended = not self.running
            log = self.log_path.read_bytes()[self._log_start :].decode(errors="replace")
            if time.monotonic() > deadline:
                raise ServerError(f"no answer after {READY_TIMEOUT:g} s: {log}")
            if ended:
                if "Address already in use" not in log:
                    raise ServerError(f"the server ended while it started: {log}")
                if may_move:
                    self.release_port()
                    self.port = self._reserve_port()
                    self.bus_port = self._reserve_port() if self.settings.cluster else None
                self.spawn()
            time.sleep(0.01)

    def release_port(self) -> None:
        """Give up the reservations of all ports of this server (internal)."""
        while self._reservations:
            self._reservations.pop().close()

    def _reserve_port(self) -> int:
        port, reservation = reserve_port(self.settings.host)
        self._reservations.append(reservation)
        return port

    def _answers(self) -> bool:
        try:
            ready = self.command("PING", timeout=1) == "PONG"
            info = self.command("INFO", "server", timeout=1)
        except (OSError, ServerReplyError):
            return False
        # If another server took the port, our process may not have exited yet: check that our
        # process is the one that answered.
        return ready and f"process_id:{self.pid}\r\n" in str(info)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            raise ServerError(f"the server on port {self.port} is not running")
        self._process.send_signal(number)
