"""A process that is suspended while the servers close its connections, and then resumed.

A laptop and the instance of a serverless function are suspended in this way.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from cross.holders import Holder, node_holder
from servers import Servers
from waiting import wait_until

ROUNDS = 5
NOW = {"wait": 0}


def is_stopped(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "T"


def thawed(holder: Holder, servers: Servers, **command: Any) -> Any:
    """Runs a command in a process that was suspended while its connections were closed."""
    holder.signal(signal.SIGSTOP)
    wait_until(lambda: is_stopped(holder.pid))
    for server in servers:
        server.command("CLIENT", "KILL", "TYPE", "normal")
    holder.send(**command)
    holder.signal(signal.SIGCONT)
    return holder.receive()


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_connections_closed_during_a_suspension_cost_no_error(servers: Servers) -> None:
    shared = {**NOW, "mode": "shared"}
    with node_holder(servers.urls) as holder:
        assert "ok" in holder.ask(lock="warm", options=NOW)
        assert holder.ask(release="warm")["ok"] is True
        for _ in range(ROUNDS):
            for options in (NOW, shared):
                answer = thawed(holder, servers, lock="r", options=options)
                assert "ok" in answer, answer
                answer = thawed(holder, servers, locked="r")
                assert answer.get("ok") is True, answer
                answer = thawed(holder, servers, extend="r")
                assert "error" not in answer, answer
                answer = thawed(holder, servers, release="r")
                assert answer.get("ok") is True, answer
            answer = thawed(holder, servers, permit="s", options={**NOW, "limit": 2}, **{"as": "p"})
            assert "ok" in answer, answer
            answer = thawed(holder, servers, release="p")
            assert answer.get("ok") is True, answer
