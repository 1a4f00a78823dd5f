"""What a chaos run watches beside the histories: clients that end or hang, and what they leave."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chaos import clients, run
from chaos.clients import Client, Clients, CrashError
from chaos.history import Run
from servers import Servers

GOOD = "import sys; sys.stdin.read()"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Client]]:
    """`start(program)` runs a Python program as a client."""
    started = []

    def start_client(program: str) -> Client:
        client = Client("Python 1", [sys.executable, "-c", program], {}, 0, tmp_path)
        started.append(client)
        client.start()
        return client

    yield start_client
    for client in started:
        if client.is_running:
            client.kill()


def kinds(client: Client) -> list[str]:
    return [violation.kind for violation in client.violations]


def test_a_client_that_ends_when_it_is_asked_to(start: Callable[[str], Client]) -> None:
    client = start(GOOD)
    client.check_running()
    client.end()
    client.wait(time.monotonic() + 60)
    assert kinds(client) == []


def test_a_client_that_hangs(start: Callable[[str], Client]) -> None:
    client = start("import time; time.sleep(600)")
    client.end()
    client.wait(time.monotonic())
    assert kinds(client) == ["hang"]


def test_a_client_that_ends_in_an_error(start: Callable[[str], Client]) -> None:
    client = start(f"{GOOD}; sys.exit(3)")
    client.end()
    client.wait(time.monotonic() + 60)
    assert kinds(client) == ["crash"]


def test_a_client_that_ends_by_itself(start: Callable[[str], Client]) -> None:
    client = start("")
    with pytest.raises(CrashError):
        while True:
            client.check_running()
    assert kinds(client) == ["crash"]


def test_a_client_that_gets_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "KINDS", {"Python idle": [sys.executable, "-c", GOOD]})
    monkeypatch.setattr(run, "PROGRESS_TIMEOUT", 0.1)
    idle = Clients([[]], {}, 0, tmp_path, None)
    happened = Run(0, tmp_path, 0)
    run.calm(happened, idle, 0)
    idle.end()
    assert idle.violations == []
    assert [violation.kind for violation in happened.violations] == ["no progress"]


def test_keys_that_stay(start_servers: Callable[..., Servers], tmp_path: Path) -> None:
    servers = start_servers(2)
    happened = Run(0, tmp_path, 0)
    for server in servers:
        server.command("SET", "orders", "token", "PX", 20)
        server.command("SET", "orders:fence", 1, "EX", 86400)
    run.check_litter(happened, servers)
    assert happened.violations == []
    servers[0].command("SET", "orders", "token")
    servers[1].command("SET", "stock:fence", 1)
    run.check_litter(happened, servers)
    assert [violation.text for violation in happened.violations] == [
        "orders stays on a node",
        "the fence of stock stays on a node for ever",
    ]
