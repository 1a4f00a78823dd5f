"""The nodes of one scenario."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import ExitStack

from servers import Reply, Server, Servers, encode_command, read_reply

from bench.placing import place
from bench.settings import NODES


class Group:
    """New servers on their own CPUs, until `stack` is closed, with counters of their CPU time."""

    def __init__(self, stack: ExitStack, nodes: int = NODES) -> None:
        self.servers = stack.enter_context(Servers(nodes))
        self.placement = place([self.servers])
        self.urls: Sequence[str] = self.servers.urls
        """The URLs for contenders. They may lead through a slow relay."""
        self.meters = [Meter(stack, server) for server in self.servers]

    def cpu(self) -> float:
        """Returns the CPU time that all servers together have used so far, in seconds."""
        return sum(meter.cpu() for meter in self.meters)

    def queued(self, resource: str) -> list[Reply]:
        """Returns the number of waiters in the queue of each node."""
        return [server.command("ZCARD", f"{{{resource}}}:queue") for server in self.servers]


class Meter:
    """A connection for INFO only. It stays open, so that connecting is not counted."""

    def __init__(self, stack: ExitStack, server: Server) -> None:
        self._connection = stack.enter_context(
            socket.create_connection(("127.0.0.1", server.port), 10)
        )
        self._reader = stack.enter_context(self._connection.makefile("rb"))

    def cpu(self) -> float:
        """Returns the CPU time that the server has used so far, in seconds."""
        info = self._info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    def scripts(self) -> int:
        """Returns the number of scripts that the server has run: one per request of quorlock."""
        calls = self._info("commandstats").get("cmdstat_evalsha", "calls=0,")
        return int(calls.removeprefix("calls=").partition(",")[0])

    def memory(self) -> int:
        """Returns the bytes that the server has allocated."""
        return int(self._info("memory")["used_memory"])

    def keys(self) -> int:
        """Returns the number of keys, including expired ones that are not deleted yet."""
        keys = self._info("keyspace").get("db0", "keys=0,")
        return int(keys.removeprefix("keys=").partition(",")[0])

    def connections(self) -> int:
        """Returns the number of connections of clients, without this one."""
        return int(self._info("clients")["connected_clients"]) - 1

    def _info(self, section: str) -> dict[str, str]:
        self._connection.sendall(encode_command("INFO", section))
        reply = str(read_reply(self._reader))
        return dict(line.split(":", 1) for line in reply.splitlines() if ":" in line)
