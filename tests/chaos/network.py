"""Each client in a network namespace of its own, whose packets can be lost by the kernel.

The proxies break the way from all clients to one node; here the way from one client to all nodes is
broken, and nobody is told: packets go to a hardware address that nobody has. That is done for each
direction by itself. It needs Linux, `ip`, `unshare` and `nsenter`, and to be root or to be allowed
user namespaces. The whole run is in a namespace, too, so that the machine's network is left alone,
and that nothing is left behind however the run ends.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from typing import NoReturn

HOST = "10.77.255.1"
"""Where the nodes are, for all clients."""
NOBODY = "02:00:00:00:00:01"

_PRIVATE = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]


def why_not() -> str | None:
    """Why there can be no namespaces on this machine; None if there can."""
    trials = [
        [*_PRIVATE, "unshare", "--net", "nsenter", "--version"],
        [*_PRIVATE, "ip", "link", "add", "name", "client0", "type", "veth"],
    ]
    try:
        for trial in trials:
            subprocess.run(trial, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        return f"there is no {error.filename}"
    except subprocess.CalledProcessError as error:
        return f"{' '.join(error.cmd)}: {error.stderr.strip() or error.returncode}"
    return None


def enter(program: Sequence[str]) -> NoReturn:
    """Becomes this program, in a namespace of its own."""
    os.execvp(_PRIVATE[0], [*_PRIVATE, *program])


def prepare() -> None:
    """Makes a new namespace usable: for the nodes, and for whoever connects to them."""
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", f"{HOST}/32", "dev", "lo")


class Network:
    """A namespace for each client, connected with this one."""

    def __init__(self, clients: int, group: int) -> None:
        """All of it is gone with the last process of the group."""
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
        """What to write before a command, so that it runs in the client's namespace."""
        return ["nsenter", f"--net=/proc/{self._holders[number].pid}/ns/net"]

    def lose(self, number: int, *, requests: bool, replies: bool) -> None:
        """From now on, what the client sends, or what is sent to it, is lost without a trace."""
        for lost, (command, neighbour) in zip(
            (requests, replies), self._directions(number), strict=True
        ):
            if lost:
                _run(*command, "replace", *neighbour, "lladdr", NOBODY, "nud", "permanent")

    def heal(self, number: int) -> None:
        """Nothing is lost any more."""
        for command, neighbour in self._directions(number):
            # There is none if nothing was lost in this direction, and nobody has asked for it.
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
