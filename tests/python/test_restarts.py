"""Nodes that restart and forget what they granted: the restart guard, and healing."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from nodes import is_free, keys
from refusing import be_replica, deny
from servers import Servers
from waiting import wait_until

import quorlock

GUARD = 6.0
"""Seconds. Long enough that what has to happen within it does, also on a busy machine."""


def votes(error: quorlock.QuorlockError) -> list[str]:
    return [node.outcome for node in error.nodes]


def counts(client: quorlock.Client) -> bool:
    """Whether a majority counts."""
    try:
        return client.lock("probe", wait=0).acquire().release()
    except quorlock.QuorlockError:
        return False


def is_guarded(client: quorlock.Client) -> bool:
    """Whether too few nodes count, because of the guard."""
    try:
        client.lock("probe", wait=0).acquire().release()
    except quorlock.QuorumError as error:
        return "guarded" in votes(error)
    return False


def all_voted(client: quorlock.Client, *outcomes: str) -> bool:
    """Whether each node voted in one of these ways when it was asked now."""

    def votes_so_far() -> list[int]:
        nodes = client.stats().nodes
        return [sum(node.outcomes.get(outcome, 0) for outcome in outcomes) for node in nodes]

    before = votes_so_far()
    counts(client)
    return all(later > earlier for earlier, later in zip(before, votes_so_far(), strict=True))


def all_count(client: quorlock.Client) -> bool:
    """Whether all nodes count."""
    return all_voted(client, "granted")


@pytest.mark.parametrize("guard", [None, GUARD])
def test_two_holders_where_nodes_forget_and_one_with_the_guard(
    start_servers: Callable[..., Servers], guard: float | None
) -> None:
    servers = start_servers(5)
    options = quorlock.ClientOptions(ttl=GUARD, restart_guard=guard, node_timeout=0.5)
    second = quorlock.Client(servers.urls, **options)

    def all_count_for_a_new_client() -> bool:
        with quorlock.Client(servers.urls, **options) as client:
            return all_count(client)

    wait_until(all_count_for_a_new_client)
    wait_until(lambda: all_count(second))
    wait_until(lambda: is_free(servers, "probe"))
    proxies = [servers.proxy(number) for number in range(5)]
    for proxy in proxies[3:]:
        proxy.mode = "refuse"
    first = quorlock.Client([proxy.url for proxy in proxies], **options)
    lease = first.lock("r", auto_extend=False).acquire()
    assert keys(servers) == ["r"] * 3
    # From now on it cannot repair its lease on the nodes that lack it.
    for proxy in proxies:
        proxy.mode = "refuse"
    for number in (0, 1):
        servers[number].restart()
    # Also by a client that never saw the nodes before.
    third = quorlock.Client(servers.urls, **options)
    wait_until(lambda: all_voted(second, "granted", "guarded"))
    if guard is None:
        with second.lock("r", wait=0) as other:
            assert lease.valid, "too slow a machine for this test"
            assert other.valid
            assert other.fence > lease.fence
        return
    for client in (second, third):
        with pytest.raises(quorlock.LockTimeoutError) as caught:
            client.lock("r", wait=0).acquire()
        assert lease.valid, "too slow a machine for this test"
        assert votes(caught.value)[:2] == ["guarded", "guarded"]
        wait_until(lambda: keys(servers) == ["r"])  # what was granted is undone
    began = time.monotonic()
    with second.lock("r", wait=60) as other:
        assert not lease.valid
        assert other.fence > lease.fence
    assert time.monotonic() - began < GUARD + 10
    assert not lease.release()


def test_after_a_restart_of_all_nodes_nobody_votes_for_a_while(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(3)
    client = quorlock.Client(servers.urls, ttl=2, restart_guard=2)
    wait_until(lambda: counts(client))
    for server in servers:
        server.restart()
    restarted = time.monotonic()
    with pytest.raises(quorlock.QuorumError) as caught:
        client.lock("r", wait=60).acquire()
    assert votes(caught.value).count("guarded") >= 2
    assert "may have restarted not long ago" in str(caught.value)
    with pytest.raises(quorlock.QuorumError):
        client.lock("r").locked()
    wait_until(lambda: counts(client))
    # Of the first to be restarted it may be a little more.
    assert time.monotonic() - restarted >= 2
    assert client.lock("r").acquire().release()


def test_the_guard_needs_no_permission_to_look(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(1)
    url = deny(servers[0], "-info")
    began = time.monotonic()
    client = quorlock.Client([url], ttl=2, restart_guard=2)
    with pytest.raises(quorlock.QuorumError):
        client.lock("r", wait=0).acquire()
    wait_until(lambda: counts(client))
    assert time.monotonic() - began >= 2
    # Every connection may be to a server that has restarted.
    servers[0].command("CLIENT", "KILL", "TYPE", "normal")
    wait_until(lambda: is_guarded(client))
    wait_until(lambda: counts(client))


def test_a_broken_connection_is_no_restart(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(1)
    client = quorlock.Client(servers.urls, ttl=2, restart_guard=2)
    wait_until(lambda: counts(client))
    for _ in range(20):
        servers[0].command("CLIENT", "KILL", "TYPE", "normal")
        wait_until(lambda: len(str(servers[0].command("CLIENT", "LIST")).splitlines()) == 2)
        assert client.lock("r", wait=0).acquire().release()


def test_a_node_that_was_a_replica_meanwhile_is_guarded(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(2, args=["--repl-diskless-sync-delay", "0"])
    client = quorlock.Client([servers.urls[0]], ttl=2, restart_guard=2)
    wait_until(lambda: counts(client))
    # Between two requests of the client. Only the periodic look can tell.
    be_replica(servers[0], servers[1])
    servers[0].command("REPLICAOF", "NO", "ONE")
    wait_until(lambda: is_guarded(client))
    wait_until(lambda: counts(client))
    # The client is told that it is a replica.
    servers[0].command("REPLICAOF", "127.0.0.1", servers[1].port)
    with pytest.raises(quorlock.QuorumError) as caught:
        client.lock("r", wait=0).acquire()
    assert votes(caught.value) == ["readonly"]
    servers[0].command("REPLICAOF", "NO", "ONE")
    assert is_guarded(client)
    wait_until(lambda: counts(client))


def test_a_replica_that_was_just_promoted_is_guarded(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(2, args=["--repl-diskless-sync-delay", "0"])
    be_replica(servers[0], servers[1])
    wait_until(lambda: counts(quorlock.Client([servers.urls[1]], ttl=3, restart_guard=3)))
    # As old as the other one.
    client = quorlock.Client([servers.urls[0]], ttl=2, restart_guard=2)
    with pytest.raises(quorlock.QuorumError) as caught:
        client.lock("r").locked()  # no write, so the server does not say that it is a replica
    assert votes(caught.value) == ["guarded"]
    servers[0].command("REPLICAOF", "NO", "ONE")
    assert is_guarded(client)
    wait_until(lambda: counts(client))


def test_another_server_behind_the_same_address_is_guarded(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(2)
    proxy = servers.proxy(0)
    client = quorlock.Client([proxy.url], ttl=2, restart_guard=2)
    wait_until(lambda: counts(client))
    # As old as the first one.
    proxy.target_port = servers[1].port
    proxy.mode = "refuse"
    proxy.mode = "pass"
    wait_until(lambda: is_guarded(client))
    wait_until(lambda: counts(client))
    # A client that never saw the first one cannot know.
    assert counts(quorlock.Client([proxy.url], ttl=2, restart_guard=2))


def test_a_rolling_restart_does_not_end_a_lease(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(5)
    client = quorlock.Client(servers.urls, ttl=2, restart_guard=2)
    other = quorlock.Client(servers.urls, ttl=2, restart_guard=2)
    wait_until(lambda: all_count(client))
    wait_until(lambda: all_count(other))
    with client.lock("r") as lease:
        for server in servers:
            server.restart()
            wait_until(lambda: all_count(client))
            assert server.command("EXISTS", "r") == 1, "it was healed"
            assert lease.valid
            with pytest.raises(quorlock.LockTimeoutError):
                other.lock("r", wait=0).acquire()
    wait_until(lambda: is_free(servers, "r"))
    assert other.lock("r").acquire().fence > lease.fence


def test_a_guarded_node_does_not_confirm(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(3)
    options = quorlock.ClientOptions(ttl=GUARD, restart_guard=GUARD, connect_timeout=0.5)
    client = quorlock.Client(servers.urls, **options)
    wait_until(lambda: all_count(client))
    lease = client.lock("r", auto_extend=False).acquire()
    servers[0].restart()
    wait_until(lambda: all_voted(client, "granted", "guarded"))
    lease.extend()
    wait_until(lambda: servers[0].command("EXISTS", "r") == 1)
    # It has the key again, but that is no majority.
    servers[1].kill()
    with pytest.raises(quorlock.QuorumError) as caught:
        lease.extend()
    assert votes(caught.value)[:2] == ["guarded", "unreachable"]
    assert lease.valid


def test_many_leases_are_healed_together(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(3)
    client = quorlock.Client(servers.urls, ttl=3, node_timeout=1)
    leases = [client.lock(f"r{number}").acquire() for number in range(200)]
    servers[1].restart()
    wait_until(lambda: servers[1].command("DBSIZE") == 400)
    stats = str(servers[1].command("INFO", "commandstats"))
    calls = int(stats.split("cmdstat_evalsha:calls=")[1].split(",")[0])
    assert calls < 100, "batches, not one by one"
    assert all(lease.valid for lease in leases)
    assert all(lease.release() for lease in leases)
    wait_until(lambda: keys(servers) == [])


def test_healing_leaves_nothing_of_a_lease_that_is_released(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(3)
    client = quorlock.Client(servers.urls, ttl=60, node_timeout=1)
    for _ in range(500):
        lease = client.lock("r").acquire()
        wait_until(lambda: servers[2].command("DEL", "r") == 1)
        lease.extend()  # heals in the background
        assert lease.release()
    wait_until(lambda: keys(servers) == [])
