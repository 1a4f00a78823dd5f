"""What a chaos run watches beside the histories: clients that end or hang, and what they leave."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chaos import clients, run
from chaos.clients import Client, Clients, CrashError
from chaos.history import Run
from servers import Servers, encode_command
from waiting import TIMEOUT, wait_until

BEGIN = """
import json, sys
def tell(**entry):
    with open(json.loads(sys.argv[1])["history"], "a") as history:
        history.write(json.dumps(entry) + chr(10))
"""
GOOD = f"{BEGIN}sys.stdin.read(1); tell(event='closed', at=1); sys.stdin.read()"
READ = "sys.stdin.read()"
WAITS = "tell(event='ask', ask=1, at=1, wait=None, resources=['orders'])"


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


def soon() -> float:
    return time.monotonic() + TIMEOUT


def test_a_client_that_ends_when_it_is_asked_to(start: Callable[[str], Client]) -> None:
    client = start(GOOD)
    client.check_running()
    client.end()
    wait_until(lambda: client.has_closed(soon()))
    client.wait(soon())
    assert kinds(client) == []


def test_a_client_that_hangs(start: Callable[[str], Client]) -> None:
    client = start("import time; time.sleep(600)")
    client.end()
    assert client.has_closed(time.monotonic())
    client.wait(soon())
    assert kinds(client) == ["hang"]


def test_a_client_that_closes_and_then_hangs(start: Callable[[str], Client]) -> None:
    client = start(f"{GOOD}\nimport time; time.sleep(600)")
    client.end()
    wait_until(lambda: client.has_closed(soon()))
    client.wait(time.monotonic())
    assert kinds(client) == ["hang"]


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="connections are not seen")
def test_a_client_that_keeps_a_connection_when_it_has_closed(
    start: Callable[[str], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = f"kept = socket.create_connection(('127.0.0.1', {server.getsockname()[1]}))"
        close = "tell(event='closed', at=1)"
        keeping = start(f"{BEGIN}import socket; {connect}; {READ[:-1]}1); {close}; {READ}")
        keeping.end()
        monkeypatch.setattr(clients, "CLOSED_TIMEOUT", 0.1)
        wait_until(lambda: keeping.has_closed(soon()))
        assert kinds(keeping) == ["connection"]


def test_a_client_that_waits_for_a_lock_until_the_end(start: Callable[[str], Client]) -> None:
    client = start(f"{BEGIN}{WAITS}\nsys.stdin.read()")
    wait_until(lambda: bool(client.under_way))
    client.end()
    assert client.has_closed(time.monotonic())
    assert kinds(client) == ["hang", "stuck"]
    assert client.violations[1].text.startswith("Python 1's wait for orders (for ever)")


def test_a_client_that_ends_in_an_error(start: Callable[[str], Client]) -> None:
    client = start(f"{GOOD}; sys.exit(3)")
    client.end()
    wait_until(lambda: client.has_closed(soon()))
    client.wait(soon())
    assert kinds(client) == ["crash"]


def test_a_client_that_ends_in_an_error_before_it_closes(start: Callable[[str], Client]) -> None:
    client = start("import sys; sys.stdin.read(1); sys.exit(3)")
    client.end()
    wait_until(lambda: client.has_closed(soon()))
    client.wait(soon())
    assert kinds(client) == ["crash"]


def test_what_was_done_to_a_client_is_in_its_history(start: Callable[[str], Client]) -> None:
    client = start(f"{BEGIN}{WAITS}\nsys.stdin.read()")
    wait_until(lambda: bool(client.under_way))
    assert not client.holds
    client.stop()
    client.go_on()
    client.kill()
    events = [entry["event"] for entry in client.entries]
    assert events == ["ask", "stopped", "continued", "killed"]


def test_what_a_client_holds(start: Callable[[str], Client]) -> None:
    ask = f"{WAITS}; tell(event='granted', ask=1, token='t')"
    client = start(f"{BEGIN}{ask}; {READ[:-1]}1); tell(event='release', token='t'); {READ}")
    wait_until(lambda: client.holds)
    client.end()
    wait_until(lambda: not client.holds)


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
    idle.close()
    idle.end()
    assert idle.violations == []
    assert [violation.kind for violation in happened.violations] == ["no progress"]


@pytest.mark.parametrize("answer", ["granted", None])
def test_a_wait_that_outlives_a_calm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str | None
) -> None:
    """The client gets a lock by another wait, which by its own account begins in the far future."""
    lucky = "tell(event='granted', ask=2, at=2**63, asked=2**63, token='t', fences={}, left=0)"
    program = f"{BEGIN}{WAITS}\n{WAITS.replace('ask=1', 'ask=2')}\n{lucky}\n"
    if answer:
        program += "tell(event='granted', ask=1, at=2**63, asked=0, token='t', fences={}, left=0)\n"
    monkeypatch.setattr(clients, "KINDS", {"Python idle": [sys.executable, "-c", program + READ]})
    monkeypatch.setattr(run, "PROGRESS_TIMEOUT", TIMEOUT if answer else 3)
    idle = Clients([[]], {}, 0, tmp_path, None)
    wait_until(lambda: any(e["event"] == "granted" for e in idle[0].histories[-1].load()))
    happened = Run(0, tmp_path, 0)
    run.calm(happened, idle, 0)
    idle.kill()
    kinds_found = [violation.kind for violation in happened.violations]
    assert kinds_found == ([] if answer else ["stuck"])


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
    servers[1].command("ZADD", "stock:queue", 1, "gone#1")
    run.check_litter(happened, servers)
    assert [violation.text for violation in happened.violations] == [
        "orders stays on a node",
        "stock:queue stays on a node",
        "the fence of stock stays on a node for ever",
    ]


def test_connections_and_subscriptions_that_stay(
    start_servers: Callable[..., Servers], tmp_path: Path
) -> None:
    servers = start_servers(2)
    happened = Run(0, tmp_path, 0)
    run.check_connections(happened, servers, TIMEOUT)
    assert happened.violations == []
    with (
        socket.create_connection(("127.0.0.1", servers[0].port)) as silent,
        socket.create_connection(("127.0.0.1", servers[1].port)) as subscriber,
    ):
        silent.sendall(encode_command("PING"))
        subscriber.sendall(encode_command("SUBSCRIBE", "calls"))
        assert silent.recv(1)
        assert subscriber.recv(1)
        run.check_connections(happened, servers, 0.1)
    assert [violation.text for violation in happened.violations] == [
        "1 clients are still connected to node 1",
        "node 2 has subscribers of ['calls']",
        "1 clients are still connected to node 2",
    ]
