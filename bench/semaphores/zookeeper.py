"""Servers of ZooKeeper, for Curator."""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

from servers import reserve_port

from bench.peers.ecosystems import JAVA

_PROGRAM = [*map(str, JAVA.program[:-1]), "org.apache.zookeeper.server.quorum.QuorumPeerMain"]
_SETTINGS = ["tickTime=2000", "initLimit=10", "syncLimit=5", "admin.enableServer=false"]


def start(stack: ExitStack, count: int) -> list[str]:
    """Starts an ensemble that runs until `stack` is closed. Returns its addresses.

    The servers keep their data on disk, as they do by default. Clients can connect when the servers
    have elected a leader, which takes about a second.
    """
    ports = [[_port(stack) for _ in range(3)] for _ in range(count)]
    ensemble = [
        f"server.{number}=127.0.0.1:{peers}:{elections};127.0.0.1:{clients}"
        for number, (clients, peers, elections) in enumerate(ports, 1)
    ]
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zookeeper-")))
    for number in range(1, count + 1):
        data = directory / str(number)
        data.mkdir()
        (data / "myid").write_text(f"{number}\n")
        settings = data / "zoo.cfg"
        settings.write_text("\n".join([*_SETTINGS, f"dataDir={data}", *ensemble, ""]))
        process = subprocess.Popen(
            [*_PROGRAM, str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        stack.callback(process.wait)
        stack.callback(process.kill)
    return [f"127.0.0.1:{clients}" for clients, _, _ in ports]


def _port(stack: ExitStack) -> int:
    port, reservation = reserve_port()
    stack.enter_context(reservation)
    return port
