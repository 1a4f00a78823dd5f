"""A chaos run detects crashes and hangs of its processes, and leftover keys and connections."""

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
    """`start(program)` starts a Python program as a client."""
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


def deadline() -> float:
    return time.monotonic() + TIMEOUT


def test_a_client_that_closes_and_exits_is_no_violation(start: Callable[[str], Client]) -> None:
    client = start(GOOD)
    client.check_running()
    client.end()
    wait_until(lambda: client.has_closed(deadline()))
    client.wait(deadline())
    assert kinds(client) == []


def test_a_client_that_does_not_close_is_a_violation(start: Callable[[str], Client]) -> None:
    client = start("import time; time.sleep(600)")
    client.end()
    assert client.has_closed(time.monotonic())
    client.wait(deadline())
    assert kinds(client) == ["hang"]


def test_a_client_that_closes_and_does_not_exit_is_a_violation(
    start: Callable[[str], Client],
) -> None:
    client = start(f"{GOOD}\nimport time; time.sleep(600)")
    client.end()
    wait_until(lambda: client.has_closed(deadline()))
    client.wait(time.monotonic())
    assert kinds(client) == ["hang"]


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="needs /proc/self/net/tcp")
def test_a_connection_of_a_closed_client_is_a_violation(
    start: Callable[[str], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = f"kept = socket.create_connection(('127.0.0.1', {server.getsockname()[1]}))"
        close = "tell(event='closed', at=1)"
        keeping = start(f"{BEGIN}import socket; {connect}; {READ[:-1]}1); {close}; {READ}")
        keeping.end()
        monkeypatch.setattr(clients, "CLOSED_TIMEOUT", 0.1)
        wait_until(lambda: keeping.has_closed(deadline()))
        assert kinds(keeping) == ["connection"]


def test_a_wait_that_does_not_end_before_the_close_is_a_violation(
    start: Callable[[str], Client],
) -> None:
    client = start(f"{BEGIN}{WAITS}\nsys.stdin.read()")
    wait_until(lambda: bool(client.waits_in_progress))
    client.end()
    assert client.has_closed(time.monotonic())
    assert kinds(client) == ["hang", "stuck"]
    assert client.violations[1].text.startswith("Python 1's wait for orders (no limit)")


def test_a_client_that_fails_after_it_has_closed_is_a_violation(
    start: Callable[[str], Client],
) -> None:
    client = start(f"{GOOD}; sys.exit(3)")
    client.end()
    wait_until(lambda: client.has_closed(deadline()))
    client.wait(deadline())
    assert kinds(client) == ["crash"]


def test_a_client_that_fails_before_it_closes_is_a_violation(
    start: Callable[[str], Client],
) -> None:
    client = start("import sys; sys.stdin.read(1); sys.exit(3)")
    client.end()
    wait_until(lambda: client.has_closed(deadline()))
    client.wait(deadline())
    assert kinds(client) == ["crash"]


def test_actions_on_a_client_are_in_its_history(start: Callable[[str], Client]) -> None:
    client = start(f"{BEGIN}{WAITS}\nsys.stdin.read()")
    wait_until(lambda: bool(client.waits_in_progress))
    assert not client.holds
    client.stop()
    client.resume()
    client.kill()
    events = [entry["event"] for entry in client.entries]
    assert events == ["ask", "stopped", "continued", "killing", "killed"]


def test_a_client_holds_from_the_grant_to_the_release(start: Callable[[str], Client]) -> None:
    ask = f"{WAITS}; tell(event='granted', ask=1, token='t')"
    client = start(f"{BEGIN}{ask}; {READ[:-1]}1); tell(event='release', token='t'); {READ}")
    wait_until(lambda: client.holds)
    client.end()
    wait_until(lambda: not client.holds)


def test_a_client_that_exits_unexpectedly_is_a_crash(start: Callable[[str], Client]) -> None:
    client = start("")
    with pytest.raises(CrashError):
        while True:
            client.check_running()
    assert kinds(client) == ["crash"]


def test_a_client_that_gets_no_lock_in_a_calm_period_is_a_violation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "KINDS", {"Python idle": [sys.executable, "-c", GOOD]})
    monkeypatch.setattr(run, "PROGRESS_TIMEOUT", 0.1)
    idle = Clients([[]], {}, 0, tmp_path, None)
    result = Run(0, tmp_path, 0)
    run.calm(result, idle, 0)
    idle.close()
    idle.end()
    assert idle.violations == []
    assert [violation.kind for violation in result.violations] == ["no progress"]


@pytest.mark.parametrize("answer", ["granted", None])
def test_a_wait_that_does_not_end_in_a_calm_period_is_a_violation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str | None
) -> None:
    """A later lock and a later permit are granted, so only the wait itself can be a violation."""
    other = "tell(event='granted', ask=2, at=2**63, asked=2**63, token='t', fences={}, left=0)"
    permit = other.replace("ask=2", "ask=3, permits=1")
    asks = [WAITS.replace("ask=1", f"ask={number}") for number in (1, 2, 3)]
    program = BEGIN + "\n".join([*asks, other, permit, ""])
    if answer:
        program += "tell(event='granted', ask=1, at=2**63, asked=0, token='t', fences={}, left=0)\n"
    monkeypatch.setattr(clients, "KINDS", {"Python idle": [sys.executable, "-c", program + READ]})
    monkeypatch.setattr(run, "PROGRESS_TIMEOUT", TIMEOUT if answer else 3)
    idle = Clients([[]], {}, 0, tmp_path, None)
    wait_until(lambda: any("permits" in entry for entry in idle[0].histories[-1].load()))
    result = Run(0, tmp_path, 0)
    run.calm(result, idle, 0)
    idle.kill()
    kinds_found = [violation.kind for violation in result.violations]
    assert kinds_found == ([] if answer else ["stuck"])


def test_leftover_keys_are_violations(
    start_servers: Callable[..., Servers], tmp_path: Path
) -> None:
    servers = start_servers(2)
    result = Run(0, tmp_path, 0)
    for server in servers:
        server.command("SET", "orders", "token", "PX", 20)
        server.command("SET", "{orders}:fence", 1, "EX", 86400)
    run.check_leftover_keys(result, servers)
    assert result.violations == []
    servers[0].command("SET", "orders", "token")
    servers[1].command("SET", "{stock}:fence", 1)
    servers[1].command("ZADD", "{stock}:queue", 1, "gone#1")
    run.check_leftover_keys(result, servers)
    assert [violation.text for violation in result.violations] == [
        "orders is left on a node",
        "{stock}:queue is left on a node",
        "the fence key of stock does not expire on a node",
    ]


def test_leftover_connections_and_subscriptions_are_violations(
    start_servers: Callable[..., Servers], tmp_path: Path
) -> None:
    servers = start_servers(2)
    result = Run(0, tmp_path, 0)
    run.check_connections(result, servers, TIMEOUT)
    assert result.violations == []
    with (
        socket.create_connection(("127.0.0.1", servers[0].port)) as silent,
        socket.create_connection(("127.0.0.1", servers[1].port)) as subscriber,
    ):
        silent.sendall(encode_command("PING"))
        subscriber.sendall(encode_command("SUBSCRIBE", "calls"))
        assert silent.recv(1)
        assert subscriber.recv(1)
        run.check_connections(result, servers, 0.1)
    assert [violation.text for violation in result.violations] == [
        "1 clients are still connected to node 1",
        "node 2 has subscribers of ['calls']",
        "1 clients are still connected to node 2",
    ]
