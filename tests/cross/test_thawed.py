"""A process that is suspended while the servers close its connections, and then resumed.

A laptop and the instance of a serverless function are suspended in this way.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cross.holders import HERE, Holder, node_holder, rust_holder
from servers import Cluster, Sentinel, Server, Servers
from waiting import wait_until

ROUNDS = 5
NOW = {"wait": 0}


def python_holder(urls: list[str]) -> Holder:
    return Holder([sys.executable, str(HERE / "holder.py"), *urls])


def is_stopped(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "T"


def thawed(holder: Holder, servers: list[Server], **command: Any) -> Any:
    """Runs a command in a process that was suspended while its connections were closed."""
    holder.signal(signal.SIGSTOP)
    wait_until(lambda: is_stopped(holder.pid))
    for server in servers:
        server.command("CLIENT", "KILL", "TYPE", "normal")
    holder.send(**command)
    holder.signal(signal.SIGCONT)
    return holder.receive()


def use(holder: Holder, servers: list[Server], rounds: int = ROUNDS) -> None:
    shared = {**NOW, "mode": "shared"}
    assert "ok" in holder.ask(lock="warm", options=NOW)
    assert holder.ask(release="warm")["ok"] is True
    for _ in range(rounds):
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


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("start", [python_holder, node_holder, rust_holder])
def test_connections_closed_during_a_suspension_cost_no_error(
    start: Callable[..., Holder], start_servers: Callable[..., Servers]
) -> None:
    servers = start_servers(3)
    with start(servers.urls) as holder:
        use(holder, list(servers))


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("group", [Sentinel, Cluster])
def test_connections_of_groups_closed_during_a_suspension_cost_no_error(group: Any) -> None:
    with group() as servers, python_holder([servers.url]) as holder:
        use(holder, list(servers), rounds=2)
