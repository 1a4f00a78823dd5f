"""Network namespaces for the clients, in which the kernel can drop their packets.

A proxy breaks the path from all clients to one node. This module breaks the path from one client to
all nodes: it drops packets without notice, in each direction independently, by sending them to a
hardware address that does not exist. It needs Linux, `ip`, `unshare`, `nsenter`, and either root or
unprivileged user namespaces. The whole run has a namespace of its own too, so it does not change
the network of the machine. It leaves nothing behind, even if it is killed.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from typing import NoReturn

HOST = "10.77.255.1"
"""The address at which all clients reach the nodes."""
UNUSED_ADDRESS = "02:00:00:00:00:01"
"""A hardware address that no interface has."""

_PRIVATE = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]


def why_not() -> str | None:
    """Returns why network namespaces cannot be used on this machine; None if they can."""
    trials = [
        [*_PRIVATE, "unshare", "--net", "nsenter", "--version"],
        [*_PRIVATE, "ip", "link", "add", "name", "client0", "type", "veth"],
    ]
    try:
        for trial in trials:
            subprocess.run(trial, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        return f"{error.filename} is not installed"
    except subprocess.CalledProcessError as error:
        return f"{' '.join(error.cmd)}: {error.stderr.strip() or error.returncode}"
    return None


def enter(program: Sequence[str]) -> NoReturn:
    """Replaces this process with the program, in a new network namespace."""
    os.execvp(_PRIVATE[0], [*_PRIVATE, *program])


def prepare() -> None:
    """Sets up the loopback interface and the address of the nodes in a new network namespace."""
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", f"{HOST}/32", "dev", "lo")


class Network:
    """A namespace for each client, connected to the namespace of the run."""

    def __init__(self, clients: int, group: int) -> None:
        """Creates the namespaces. They disappear when the processes of the group have ended."""
        self._holders = [
            subprocess.Popen(["unshare", "--net", "sleep", "infinity"], process_group=group)
            for _ in range(clients)
        ]
        for number, holder in enumerate(self._holders):
            while _namespace(holder.pid) == _namespace(os.getpid()):
                assert holder.poll() is None, "no network namespace for a client"
                time.sleep(0.001)
            near, far = f"10.77.{number}.1", f"10.77.{number}.2"
            peer = ["type", "veth", "peer", "name", "eth0", "netns", str(holder.pid)]
            _run("ip", "link", "add", f"client{number}", *peer)
            _run("ip", "address", "add", f"{near}/24", "dev", f"client{number}")
            _run("ip", "link", "set", f"client{number}", "up")
            inside = self.command(number)
            _run(*inside, "ip", "link", "set", "lo", "up")
            _run(*inside, "ip", "address", "add", f"{far}/24", "dev", "eth0")
            _run(*inside, "ip", "link", "set", "eth0", "up")
            _run(*inside, "ip", "route", "add", "default", "via", near)

    def command(self, number: int) -> list[str]:
        """Returns a command prefix that runs a command in the client's network namespace."""
        return ["nsenter", f"--net=/proc/{self._holders[number].pid}/ns/net"]

    def lose(self, number: int, *, requests: bool, replies: bool) -> None:
        """Drops the packets that the client sends (`requests`) or receives (`replies`)."""
        for lost, (command, neighbour) in zip(
            (requests, replies), self._directions(number), strict=True
        ):
            if lost:
                _run(*command, "replace", *neighbour, "lladdr", UNUSED_ADDRESS, "nud", "permanent")

    def restore(self, number: int) -> None:
        """Stops dropping packets of this client."""
        for command, neighbour in self._directions(number):
            # There is no entry, and the command fails, if no packet was dropped or sent in this
            # direction.
            subprocess.run([*command, "del", *neighbour], check=False, capture_output=True)

    def _directions(self, number: int) -> list[tuple[list[str], list[str]]]:
        return [
            ([*self.command(number), "ip", "neigh"], [f"10.77.{number}.1", "dev", "eth0"]),
            (["ip", "neigh"], [f"10.77.{number}.2", "dev", f"client{number}"]),
        ]


def _namespace(pid: int) -> int:
    return os.stat(f"/proc/{pid}/ns/net").st_ino  # noqa: PTH116


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
