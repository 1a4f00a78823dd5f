"""Python, Node.js and compatible lock libraries exclude each other on the same servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cross.holders import Holder, node_holder
from servers import Servers

import quorlock


@pytest.fixture
def node(servers: Servers) -> Iterator[Holder]:
    node = node_holder(servers.urls)
    yield node
    node.close()


@pytest.fixture
def client(servers: Servers) -> Iterator[quorlock.Client]:
    with quorlock.Client(servers.urls, retry_delay=(0.002, 0.01)) as client:
        yield client


def test_a_lease_of_one_language_excludes_the_other(client: quorlock.Client, node: Holder) -> None:
    with client.lock("r"):
        assert node.ask(lock="r", options={"wait": 0})["error"] == "TIMEOUT"
        assert node.ask(locked="r") == {"ok": True}
    assert "fence" in node.ask(lock="r")["ok"]
    with pytest.raises(quorlock.LockTimeoutError):
        client.lock("r", wait=0).acquire()
    assert client.lock("r").locked()
    assert node.ask(extend="r") == {}
    assert node.ask(release="r") == {"ok": True}
    with client.lock("r", wait=0):
        pass


def test_fences_increase_across_languages(
    client: quorlock.Client, node: Holder, servers: Servers
) -> None:
    last = 0
    for round_ in range(30):
        with client.lock("r") as lease:
            assert lease.fence > last
            last = lease.fence
        fence = node.ask(lock="r")["ok"]["fence"]
        assert fence > last
        last = fence
        assert node.ask(release="r") == {"ok": True}
        if round_ % 10 == 5:
            servers[round_ % 3].command("FLUSHALL")


def test_a_waiter_of_one_language_gets_the_lock_from_a_holder_of_the_other(
    client: quorlock.Client, node: Holder
) -> None:
    with client.lock("r") as lease:
        node.send(lock="r", options={"wait": 60_000})
        lease.extend()
    assert node.receive()["ok"]["fence"] > lease.fence
    assert node.ask(release="r") == {"ok": True}


def test_a_lock_is_free_after_the_ttl_of_a_killed_process(
    client: quorlock.Client, servers: Servers
) -> None:
    dying = node_holder(servers.urls)
    assert "ok" in dying.ask(lock="r", options={"ttl": 500})
    dying.kill()
    with client.lock("r", wait=60):
        pass


def test_the_key_is_compatible_with_other_redlock_libraries(
    client: quorlock.Client, node: Holder, servers: Servers
) -> None:
    for server in servers:
        assert server.command("SET", "theirs", "token", "NX", "PX", "60000") == "OK"
    with pytest.raises(quorlock.LockTimeoutError):
        client.lock("theirs", wait=0).acquire()
    assert node.ask(lock="theirs", options={"wait": 0})["error"] == "TIMEOUT"
    token = node.ask(lock="ours")["ok"]["token"]
    holding = 0
    for server in servers:
        refused = server.command("SET", "ours", "x", "NX", "PX", "60000") is None
        holding += refused and server.command("GET", "ours") == token
    assert holding >= 2
    assert node.ask(release="ours")["ok"] in (True, False)
