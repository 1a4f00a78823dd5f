"""A group of servers that are started and ended together. The base of all kinds of servers.

No server outlives the process that started it, even if that process is killed: all servers are in
the process group of a watchdog, which kills the group (frozen servers too) when its parent is gone.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from proxy import Proxy

from fleet.certificates import Certificates, Kind
from fleet.errors import ServerError
from fleet.resp import ServerReplyError
from fleet.server import READY_TIMEOUT, Server
from fleet.settings import Settings

# The pipe to the watchdog's stdin closes when the parent ends. Forked children of the parent may
# still have copies of the pipe, so the watchdog also checks its parent's id. It ignores SIGHUP,
# which the kernel sends to an orphaned process group with a stopped member, such as a frozen
# server.
_WATCHDOG = """
import os, select, signal, sys
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
print(flush=True)
while os.getppid() == int(sys.argv[1]) and not select.select([0], [], [], 0.5)[0]:
    pass
os.killpg(0, signal.SIGKILL)
"""


class Group:
    """Servers in one process group and one temporary directory, with proxies in front of them."""

    def __init__(self) -> None:
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
        with self._starting():
            assert self._watchdog.stdout is not None
            if not self._watchdog.stdout.readline():
                raise ServerError("the watchdog did not start")

    @contextmanager
    def _starting(self) -> Iterator[None]:
        """Cleans up everything except the logs if starting fails."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, Exception):
                self.keep_logs()
            self.close()
            raise

    def _certify(self, kind: Kind = "valid") -> Certificates:
        return Certificates(self._directory / "certificates", kind)

    def _start(self, settings: Settings, count: int = 1) -> list[Server]:
        """Starts more servers, and waits until they answer."""
        started = []
        for _ in range(count):
            directory = self._directory / str(len(self._servers))
            server = Server(directory, self._watchdog.pid, settings)
            self._servers.append(server)
            started.append(server)
            server.spawn()
        for server in started:
            server.wait_ready(may_move=True)
        return started

    @property
    def process_group(self) -> int:
        """The process group of the servers. A process that is started in this group ends together
        with the servers."""
        return self._watchdog.pid

    @property
    def urls(self) -> list[str]:
        """The URLs of all servers, running or not."""
        return [server.url for server in self._servers]

    def describe(self) -> list[dict[str, object]]:
        """Returns descriptions of the servers, for tests in other languages."""
        return [server.describe() for server in self._servers]

    def proxy(self, index: int, host: str = "127.0.0.1") -> Proxy:
        """Starts a proxy in front of a server, which is closed together with the servers."""
        server = self._servers[index]
        proxy = Proxy(server.port, server.settings.password, host)
        self.proxies.append(proxy)
        return proxy

    def flush(self) -> None:
        """Deletes all keys on all servers."""
        for server in self._servers:
            # Fails on replicas, whose keys their masters delete, and on sentinels, which have none.
            with suppress(ServerReplyError):
                server.command("FLUSHALL")

    def keep_logs(self) -> Path:
        """Make `close` keep the servers' logs and data, and print their directory on stderr."""
        self._logs_wanted = True
        return self._directory

    def close(self) -> None:
        """End all processes. Does nothing in a forked child: the servers belong to its parent."""
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
        # An interrupt is not a failure, so nobody needs the logs.
        if isinstance(exc, Exception):
            self.keep_logs()
        self.close()


def seeds(addresses: str) -> dict[str, str]:
    """Returns fields for the description of a server: all addresses, the first and the last.

    `addresses` are separated by commas, as in a URL.
    """
    first, *_, last = addresses.split(",")
    return {"seeds": addresses, "seed": first, "last_seed": last}


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    """Waits until a condition on servers is true. An error of a server counts as false."""
    deadline = time.monotonic() + READY_TIMEOUT
    while True:
        with suppress(OSError, ServerError, ServerReplyError):
            if condition():
                return
        if time.monotonic() > deadline:
            raise ServerError(f"not true after {READY_TIMEOUT:g} s: {what}")
        time.sleep(0.02)
