"""The nodes that contenders of one scenario use."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import ExitStack

from parameters import NODES
from placing import place
from servers import Server, Servers, encode_command, read_reply


class Group:
    """Fresh servers, placed, until the end of `stack`; and what their CPUs have done."""

    def __init__(self, stack: ExitStack, nodes: int = NODES) -> None:
        self.servers = stack.enter_context(Servers(nodes))
        self.placement = place([self.servers])
        self.urls: Sequence[str] = self.servers.urls
        """What contenders are given; may lead through something that is slow."""
        self.meters = [Meter(stack, server) for server in self.servers]

    def cpu(self) -> float:
        """Seconds that all servers together have used so far."""
        return sum(meter.cpu() for meter in self.meters)


class Meter:
    """A connection to ask for nothing else, so that connecting is not counted."""

    def __init__(self, stack: ExitStack, server: Server) -> None:
        self._connection = stack.enter_context(
            socket.create_connection(("127.0.0.1", server.port), 10)
        )
        self._reader = stack.enter_context(self._connection.makefile("rb"))

    def cpu(self) -> float:
        """Seconds that the server has used so far."""
        info = self._info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    def scripts(self) -> int:
        """How many scripts it was asked to run: each is one request of quorlock's."""
        calls = self._info("commandstats").get("cmdstat_evalsha", "calls=0,")
        return int(calls.removeprefix("calls=").partition(",")[0])

    def _info(self, section: str) -> dict[str, str]:
        self._connection.sendall(encode_command("INFO", section))
        reply = str(read_reply(self._reader))
        return dict(line.split(":", 1) for line in reply.splitlines() if ":" in line)
