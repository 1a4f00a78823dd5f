"""Nodes that restart without their keys: the restart guard, and repair."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from nodes import keys, scripts
from refusing import be_replica, deny
from servers import Servers
from waiting import wait_until

import quorlock


def outcomes_of(error: quorlock.QuorlockError) -> list[str]:
    return [node.outcome for node in error.nodes]


def majority_votes(client: quorlock.Client) -> bool:
    """Tries an acquire, and returns whether the votes of a majority counted."""
    try:
        return client.lock("probe", wait=0).acquire().release()
    except quorlock.QuorlockError:
        return False


def is_guarded(client: quorlock.Client) -> bool:
    """Tries an acquire, and returns whether it failed because of the restart guard."""
    try:
        client.lock("probe", wait=0).acquire().release()
    except quorlock.QuorumError as error:
        return "guarded" in outcomes_of(error)
    return False


def test_no_node_votes_within_the_guard_after_a_restart_of_all(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(3)
    client = quorlock.Client(servers.urls, ttl=2, restart_guard=2)
    wait_until(lambda: majority_votes(client))
    restarted = time.monotonic()
    for server in servers:
        server.restart()
    with pytest.raises(quorlock.QuorumError) as caught:
        client.lock("r", wait=60).acquire()
    assert outcomes_of(caught.value).count("guarded") >= 2
    assert "may have restarted not long ago" in str(caught.value)
    with pytest.raises(quorlock.QuorumError):
        client.lock("r").locked()
    wait_until(lambda: majority_votes(client))
    # The guard of 2 s begins when a node restarts, or later when the client connects to it again.
    assert time.monotonic() - restarted >= 2
    assert client.lock("r").acquire().release()


def test_the_guard_works_without_permission_for_info(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(1)
    url = deny(servers[0], "-info")
    began = time.monotonic()
    client = quorlock.Client([url], ttl=2, restart_guard=2)
    with pytest.raises(quorlock.QuorumError):
        client.lock("r", wait=0).acquire()
    wait_until(lambda: majority_votes(client))
    assert time.monotonic() - began >= 2
    # Without INFO, the client must assume that each new connection is to a restarted server.
    servers[0].command("CLIENT", "KILL", "TYPE", "normal")
    wait_until(lambda: is_guarded(client))
    wait_until(lambda: majority_votes(client))


def test_a_reconnect_to_the_same_server_process_is_not_guarded(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(1)
    client = quorlock.Client(servers.urls, ttl=2, restart_guard=2)
    wait_until(lambda: majority_votes(client))
    for _ in range(20):
        servers[0].command("CLIENT", "KILL", "TYPE", "normal")
        wait_until(lambda: len(str(servers[0].command("CLIENT", "LIST")).splitlines()) == 2)
        assert client.lock("r", wait=0).acquire().release()


def test_a_node_that_was_temporarily_a_replica_is_guarded(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(2, args=["--repl-diskless-sync-delay", "0"])
    client = quorlock.Client([servers.urls[0]], ttl=2, restart_guard=2)
    wait_until(lambda: majority_votes(client))
    # The role changes and is restored between two requests: only the periodic check can detect it.
    be_replica(servers[0], servers[1])
    servers[0].command("REPLICAOF", "NO", "ONE")
    wait_until(lambda: is_guarded(client))
    wait_until(lambda: majority_votes(client))
    # This time, a request is refused because the node is a replica.
    servers[0].command("REPLICAOF", "127.0.0.1", servers[1].port)
    with pytest.raises(quorlock.QuorumError) as caught:
        client.lock("r", wait=0).acquire()
    assert outcomes_of(caught.value) == ["readonly"]
    servers[0].command("REPLICAOF", "NO", "ONE")
    assert is_guarded(client)
    wait_until(lambda: majority_votes(client))


def test_a_recently_promoted_replica_is_guarded(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(2, args=["--repl-diskless-sync-delay", "0"])
    be_replica(servers[0], servers[1])
    wait_until(lambda: majority_votes(quorlock.Client([servers.urls[1]], ttl=3, restart_guard=3)))
    # Both servers have about the same uptime, so the guard cannot depend on the uptime.
    client = quorlock.Client([servers.urls[0]], ttl=2, restart_guard=2)
    with pytest.raises(quorlock.QuorumError) as caught:
        client.lock("r").locked()  # not a write, so the replica does not refuse it
    assert outcomes_of(caught.value) == ["guarded"]
    servers[0].command("REPLICAOF", "NO", "ONE")
    assert is_guarded(client)
    wait_until(lambda: majority_votes(client))


def test_another_server_behind_the_same_address_is_guarded(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(2)
    proxy = servers.proxy(0)
    client = quorlock.Client([proxy.url], ttl=2, restart_guard=2)
    wait_until(lambda: majority_votes(client))
    # Both servers have about the same uptime, so the guard cannot depend on the uptime.
    proxy.target_port = servers[1].port
    proxy.mode = "refuse"
    proxy.mode = "pass"
    wait_until(lambda: is_guarded(client))
    wait_until(lambda: majority_votes(client))
    # A client that was never connected to the first server cannot detect the change.
    assert majority_votes(quorlock.Client([proxy.url], ttl=2, restart_guard=2))


def test_many_leases_are_repaired_in_batches(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(3)
    client = quorlock.Client(servers.urls, ttl=3, node_timeout=1)
    leases = [client.lock(f"r{number}").acquire() for number in range(200)]
    servers[1].restart()
    wait_until(lambda: servers[1].command("DBSIZE") == 400)
    assert scripts(servers[1]) < 100, "keys were repaired one by one"
    assert all(lease.valid for lease in leases)
    assert all(lease.release() for lease in leases)
    wait_until(lambda: keys(servers) == [])
