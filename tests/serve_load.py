"""A bounded load on `quorlock serve`, which must not cost the lease of another client. Used by the
tests of `serve`, and as the soak of `make verify`:

    python tests/serve_load.py SECONDS

The daemon may open few files and use little memory. For all of the time, clients connect and close,
hold all connections that they get, send half requests, ask for the status, lock names that are as
long as possible, ask for and hold as many permits as possible, and close the daemon's connections
to nodes. Meanwhile, a victim holds a lease of two seconds, and must never lose it.

The exit status is 1 if the lease was lost, or if the daemon used more memory than allowed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from command_line import CommandLine
from daemons import Connection, Daemon
from fleet.resp import ServerReplyError, encode_command
from servers import Servers

FILES = 256
"""The limit of open files of the daemon."""

MEMORY = 32
"""The limit of its clients' memory, in MiB."""

OWN_MEMORY = 32
"""What the daemon may need itself, and for what its allocator keeps, in MiB."""

TTL = 2000
"""Of the victim's lease, in ms."""

LOST = (OSError, EOFError, ServerReplyError, AssertionError)
"""How a connection ends that the daemon refuses or closes."""


def with_files(quorlock: CommandLine, files: int) -> CommandLine:
    """Returns the command with a limit of open files."""
    limited = CommandLine(quorlock.installation, [])
    limited.environment = quorlock.environment
    limited.program = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *quorlock.program]
    return limited


def memory(daemon: Daemon) -> float:
    """Returns the most memory that the daemon has used, in MiB."""
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


# The clients of the load. Each ends after a moment, and begins again.


def connect_and_close(path: Path) -> None:
    for _ in range(2000):
        with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError):
            client.connect(str(path))


def hold_connections(path: Path) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(FILES):
            with contextlib.suppress(OSError):
                stack.enter_context(Connection(path))
        time.sleep(1)


def send_half_requests(path: Path) -> None:
    half = b"*2\r\n$4\r\nECHO\r\n$1000000\r\n" + b"x" * 900_000
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            with contextlib.suppress(OSError):
                stack.enter_context(Connection(path)).socket.sendall(half)
        time.sleep(0.2)


def ask_for_the_status(path: Path) -> None:
    with contextlib.suppress(*LOST), Connection(path) as client:
        client.socket.sendall(encode_command("STATUS") * 200)
        for _ in range(200):
            client.reply()


def lock_long_names(path: Path) -> None:
    names = [f"{os.getpid()}-{number}".ljust(8000, "x") for number in range(64)]
    with contextlib.ExitStack() as stack:
        for lease in range(20):
            with contextlib.suppress(*LOST):
                client = stack.enter_context(Connection(path))
                # Those that follow wait.
                client.send("LOCK", "RESOURCES", len(names), *names, "WAIT", 200)
                if lease == 0:
                    client.reply()
        time.sleep(0.1)


def ask_for_permits(path: Path) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(40):
            with contextlib.suppress(*LOST):
                name = f"{os.getpid()}-{number}".ljust(8000, "x")
                stack.enter_context(Connection(path)).send("STATUS", name, "LIMIT", 1)
        time.sleep(0.2)


def hold_permits(path: Path) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(100):
            with contextlib.suppress(*LOST):
                client = stack.enter_context(Connection(path))
                name = f"{os.getpid()}-{number}"
                client.send("LOCK", name, "LIMIT", 1024, "PERMITS", 1024, "TTL", TTL)
        time.sleep(TTL / 1000)


def lock_and_close(path: Path) -> None:
    for number in range(50):
        with contextlib.suppress(*LOST), Connection(path) as client:
            client.lock(f"{os.getpid()}-{number}", "TTL", 5000)


LOADS: dict[str, Callable[[Path], None]] = {
    load.__name__: load
    for load in (
        connect_and_close,
        hold_connections,
        send_half_requests,
        ask_for_the_status,
        ask_for_permits,
        hold_permits,
        lock_long_names,
        lock_and_close,
    )
}


@contextlib.contextmanager
def load(path: Path, *names: str) -> Iterator[None]:
    """Runs these loads, or all of them, each in a process of its own."""
    processes = [
        subprocess.Popen([sys.executable, __file__, name, str(path)]) for name in names or LOADS
    ]
    try:
        yield
        assert [process.poll() for process in processes] == [None] * len(processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()


class Victim:
    """A client that holds a lease of two seconds."""

    def __init__(self, daemon: Daemon) -> None:
        self.client = daemon.connect()
        self.lease, _ = self.client.lock("victim", "TTL", TTL)
        self.least = TTL
        """The shortest validity that was seen, in ms."""

    def check(self) -> None:
        """Raises ServerReplyError if the lease is lost."""
        self.least = min(self.least, int(str(self.client.ask("CHECK", self.lease))))

    def hold(self, seconds: float, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Checks that the lease stays valid for this time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.check()
            meanwhile()
            time.sleep(0.05)


def soak(quorlock: CommandLine, servers: Servers, path: Path, seconds: float) -> dict[str, float]:
    """Holds the victim's lease under all loads for this time. Returns what was measured."""
    limits = [f"--max-memory={MEMORY}MiB", "--max-hold=1d"]
    broken = 0
    last = time.monotonic()

    def break_a_connection() -> None:
        # One node at a time, so that a majority is always connected.
        nonlocal broken, last
        if time.monotonic() - last > 1:
            servers[broken % len(servers)].command("CLIENT", "KILL", "TYPE", "normal")
            broken, last = broken + 1, time.monotonic()

    with Daemon(with_files(quorlock, FILES), path, *limits) as daemon:
        victim = Victim(daemon)
        with load(path):
            victim.hold(seconds, break_a_connection)
        status = victim.client.status()
        used = memory(daemon)
        assert used < MEMORY + OWN_MEMORY, used
        assert victim.client.ask("UNLOCK", victim.lease) == 1
        victim.client.close()
        assert daemon.terminate().returncode == 0
    return {
        "connections": status["connections"],
        "refused": status["refused"],
        "connections to nodes that were broken": broken,
        "shortest validity, ms": victim.least,
        "memory, MiB": round(used, 1),
    }


def main() -> None:
    if sys.argv[1] in LOADS:
        run, path = LOADS[sys.argv[1]], Path(sys.argv[2])
        while True:
            run(path)
    seconds = float(sys.argv[1])
    with Servers(3) as servers, tempfile.TemporaryDirectory() as directory:
        quorlock = CommandLine("cargo", servers.urls)
        measured = soak(quorlock, servers, Path(directory) / "socket", seconds)
    for name, value in {"seconds": seconds, **measured}.items():
        print(f"{name}: {value:,}")


if __name__ == "__main__":
    main()
