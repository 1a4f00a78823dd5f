"""Duplicate nodes: one server under two addresses would have two votes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from nodes import is_free
from refusing import deny
from servers import Servers
from waiting import wait_until

import quorlock


def finds_duplicates(client: quorlock.Client, *addresses: str) -> bool:
    """Returns whether the next acquire fails because of duplicate nodes.

    Asserts that the error names these addresses.
    """
    error = None
    try:
        client.lock("r", wait=0).acquire().release()
    except quorlock.ConfigError as raised:
        error = raised
    if error is not None:
        assert all(address in str(error) for address in addresses), error
        assert "same server" in str(error)
        assert error.resource == "r"
    return error is not None


def localhost(url: str) -> str:
    return url.replace("127.0.0.1", "localhost")


def test_a_slow_duplicate_is_refused(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(2)
    slow = servers.proxy(0)
    slow.delay = 0.1
    urls = [*servers.urls, slow.url]
    with quorlock.Client(urls, connect_timeout=20) as client:
        assert finds_duplicates(client, urls[0], urls[2])
    assert servers[1].command("DBSIZE") == 0, "nothing was granted"


@pytest.mark.parametrize("has_run_id", [True, False])
def test_a_duplicate_that_connects_later_is_refused_until_it_is_fixed(
    start_servers: Callable[..., Servers], has_run_id: bool
) -> None:
    servers = start_servers(3)
    late = servers.proxy(0)
    late.mode = "refuse"
    shown = [*servers.urls[:2], late.url]
    urls = shown
    if not has_run_id:
        for server in servers:
            deny(server, "-info")
        urls = [url.replace("//", "//locker:secret@") for url in shown]
    with quorlock.Client(urls, ttl=60, connect_timeout=0.5) as client:
        lease = client.lock("held").acquire()
        assert not finds_duplicates(client)
        late.mode = "pass"
        wait_until(lambda: finds_duplicates(client, shown[0], shown[2]))
        # The held lease was granted by two different servers, so it is still valid.
        lease.extend()
        servers[1].kill()
        with pytest.raises(quorlock.QuorumError) as caught:
            lease.extend()
        # Of the two votes of the duplicate nodes, only one counts.
        votes = {caught.value.nodes[number].outcome for number in (0, 2)}
        assert votes == {"confirmed", "duplicate"}
        servers[1].restart()
        if not has_run_id:
            deny(servers[1], "-info")
        # The restarted server has lost its key, so a majority may not hold the lease any more.
        lease.release()
        # The address now leads to another server. The client notices when it reconnects.
        late.target_port = servers[2].port
        late.mode = "refuse"
        late.mode = "pass"
        wait_until(lambda: not finds_duplicates(client))


def test_duplicates_without_a_run_id_are_refused(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(2)
    one, two = (deny(server, "-@dangerous") for server in servers)
    shown = servers.urls[0]
    for order in ([one, two, localhost(one)], [localhost(one), one], [two, localhost(one), one]):
        for _ in range(5):
            with quorlock.Client(order, node_timeout=1) as client:
                assert finds_duplicates(client, shown, localhost(shown))
                assert finds_duplicates(client, shown, localhost(shown)), (
                    "only the first acquire failed"
                )
            wait_until(lambda: is_free(servers, "r"))
    # A duplicate that answers after a majority has granted the lock is refused too.
    slow = servers.proxy(0)
    url = slow.url.replace("//", "//locker:secret@")
    with quorlock.Client([one, two, url], node_timeout=1) as client:
        slow.delay = 0.05
        assert finds_duplicates(client, shown, slow.url)
    wait_until(lambda: is_free(servers, "r"))
    # Two different servers are accepted.
    with quorlock.Client([one, two]) as client:
        assert not finds_duplicates(client)


def test_duplicates_are_refused_while_others_hold_the_lock(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(1)
    servers[0].command("SET", "r", "somebody else")
    with quorlock.Client([servers.urls[0], localhost(servers.urls[0])]) as client:
        assert finds_duplicates(client, servers.urls[0])
        with pytest.raises(quorlock.ConfigError):
            client.lock("r").locked()
    assert servers[0].command("GET", "r") == "somebody else"
