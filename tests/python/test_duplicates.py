"""One server under two addresses: its vote would count twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from nodes import is_free
from refusing import deny
from servers import Servers
from waiting import wait_until

import quorlock


def mistake(client: quorlock.Client, *addresses: str) -> bool:
    """Whether the next acquire fails, and names these addresses."""
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


def test_two_names_of_one_server(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(2)
    urls = [servers.urls[0], servers.urls[1], localhost(servers.urls[0]) + "/1"]
    for order in (urls, urls[::-1]):
        for _ in range(10):
            with quorlock.Client(order) as client:
                assert mistake(client, urls[0], urls[2])
                with pytest.raises(quorlock.ConfigError):
                    client.lock("r").locked()
    wait_until(lambda: is_free(servers, "r"))
    assert servers[0].command("DBSIZE") == 0, "nothing was granted"


def test_a_socket_and_a_port_of_one_server(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(1, unix_socket=True)
    port = f"redis://127.0.0.1:{servers[0].port}"
    with quorlock.Client([port, servers.urls[0]]) as client:
        assert mistake(client, port, servers.urls[0])


def test_a_server_that_takes_its_time_to_be_reached(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(2)
    slow = servers.proxy(0)
    slow.delay = 0.1
    urls = [*servers.urls, slow.url]
    with quorlock.Client(urls, connect_timeout=20) as client:
        assert mistake(client, urls[0], urls[2])
    assert servers[1].command("DBSIZE") == 0, "nothing was granted"


def test_two_proxies_to_one_server(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(2)
    urls = [servers.proxy(0).url, servers.urls[1], servers.proxy(0).url]
    with quorlock.Client(urls) as client:
        assert mistake(client, urls[0], urls[2])


@pytest.mark.parametrize("tells", [True, False])
def test_a_server_that_is_reached_later(start_servers: Callable[..., Servers], tells: bool) -> None:
    servers = start_servers(3)
    late = servers.proxy(0)
    late.mode = "refuse"
    shown = [*servers.urls[:2], late.url]
    urls = shown
    if not tells:
        for server in servers:
            deny(server, "-info")
        urls = [url.replace("//", "//locker:secret@") for url in shown]
    with quorlock.Client(urls, ttl=60, connect_timeout=0.5) as client:
        with client.lock("held") as lease:
            assert not mistake(client)
            late.mode = "pass"
            wait_until(lambda: mistake(client, shown[0], shown[2]))
            # What is held already was granted by two servers, and is kept by two.
            lease.extend()
            servers[1].kill()
            with pytest.raises(quorlock.QuorumError) as caught:
                lease.extend()
            # The one that was second.
            votes = {caught.value.nodes[number].outcome for number in (0, 2)}
            assert votes == {"confirmed", "duplicate"}
            servers[1].restart()
            if not tells:
                deny(servers[1], "-info")
        # Mended behind the client's back.
        late.target_port = servers[2].port
        late.mode = "refuse"
        late.mode = "pass"
        wait_until(lambda: not mistake(client))


def test_servers_that_do_not_tell_who_they_are(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(2)
    one, two = (deny(server, "-@dangerous") for server in servers)
    shown = servers.urls[0]
    for order in ([one, two, localhost(one)], [localhost(one), one], [two, localhost(one), one]):
        for _ in range(5):
            with quorlock.Client(order, node_timeout=1) as client:
                assert mistake(client, shown, localhost(shown))
                assert mistake(client, shown, localhost(shown)), "and again"
            wait_until(lambda: is_free(servers, "r"))
    # Also if it answers when a majority has granted the lock already.
    slow = servers.proxy(0)
    url = slow.url.replace("//", "//locker:secret@")
    with quorlock.Client([one, two, url], node_timeout=1) as client:
        slow.delay = 0.05
        assert mistake(client, shown, slow.url)
    wait_until(lambda: is_free(servers, "r"))
    # Two servers are two.
    with quorlock.Client([one, two]) as client:
        assert not mistake(client)


def test_a_held_lock_does_not_hide_it(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(1)
    servers[0].command("SET", "r", "somebody else")
    with quorlock.Client([servers.urls[0], localhost(servers.urls[0])]) as client:
        assert mistake(client, servers.urls[0])
    assert servers[0].command("GET", "r") == "somebody else"
