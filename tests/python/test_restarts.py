"""Nodes that restart without their keys: the restart guard, and repair."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from nodes import is_free, keys, scripts
from refusing import be_replica, deny
from servers import Servers
from waiting import wait_until

import quorlock

GUARD = 10.0
"""The restart guard, in seconds. It is long enough that a test can finish several steps within it,
even on a loaded machine."""


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


def all_voted(client: quorlock.Client, *outcomes: str) -> bool:
    """Tries an acquire, and returns whether each node voted with one of these outcomes."""

    def votes_so_far() -> list[int]:
        nodes = client.stats().nodes
        return [sum(node.outcomes.get(outcome, 0) for outcome in outcomes) for node in nodes]

    before = votes_so_far()
    majority_votes(client)
    return all(later > earlier for earlier, later in zip(before, votes_so_far(), strict=True))


def all_grant(client: quorlock.Client) -> bool:
    """Tries an acquire, and returns whether all nodes granted it."""
    return all_voted(client, "granted")


@pytest.mark.parametrize("guard", [None, GUARD])
def test_forgetful_nodes_allow_two_holders_without_the_guard_and_one_with_it(
    start_servers: Callable[..., Servers], guard: float | None
) -> None:
    servers = start_servers(5)
    options = quorlock.ClientOptions(ttl=GUARD, restart_guard=guard, node_timeout=0.5)
    second = quorlock.Client(servers.urls, **options)

    def all_grant_to_new_client() -> bool:
        with quorlock.Client(servers.urls, **options) as client:
            return all_grant(client)

    wait_until(all_grant_to_new_client)
    wait_until(lambda: all_grant(second))
    wait_until(lambda: is_free(servers, "probe"))
    # The first client cannot reach two nodes, so its lease remains on only three of five nodes.
    unreachable = [servers.proxy(number) for number in (3, 4)]
    for proxy in unreachable:
        proxy.close()
    urls = servers.urls[:3] + [proxy.url for proxy in unreachable]
    first = quorlock.Client(urls, **options)
    lease = first.lock("r", auto_extend=False).acquire()
    wait_until(lambda: keys(servers) == ["r"] * 3)
    for number in (0, 1):
        servers[number].restart()
    # The guard also applies to a client that connects for the first time after the restarts.
    third = quorlock.Client(servers.urls, **options)
    wait_until(lambda: all_voted(second, "granted", "guarded"))
    if guard is None:
        with second.lock("r", wait=0) as other:
            assert lease.valid, "the machine is too slow for this test"
            assert other.valid
            assert other.fence > lease.fence
        return
    for client in (second, third):
        with pytest.raises(quorlock.LockTimeoutError) as caught:
            client.lock("r", wait=0).acquire()
        assert lease.valid, "the machine is too slow for this test"
        assert outcomes_of(caught.value)[:2] == ["guarded", "guarded"]
        wait_until(lambda: keys(servers) == ["r"])  # the failed acquire is undone
    began = time.monotonic()
    with second.lock("r", wait=60) as other:
        assert not lease.valid
        assert other.fence > lease.fence
    assert time.monotonic() - began < GUARD + 10
    assert not lease.release()


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


def test_a_rolling_restart_does_not_end_a_lease(start_servers: Callable[..., Servers]) -> None:
    servers = start_servers(5)
    client = quorlock.Client(servers.urls, ttl=3, restart_guard=3)
    other = quorlock.Client(servers.urls, ttl=3, restart_guard=3)
    wait_until(lambda: all_grant(client))
    wait_until(lambda: all_grant(other))
    with client.lock("r") as lease:
        for server in servers:
            server.restart()
            wait_until(lambda: all_grant(client))
            assert server.command("EXISTS", "r") == 1, "the key was not repaired"
            assert lease.valid
            with pytest.raises(quorlock.LockTimeoutError):
                other.lock("r", wait=0).acquire()
    wait_until(lambda: is_free(servers, "r"))
    assert other.lock("r").acquire().fence > lease.fence


def test_an_extension_is_not_confirmed_by_guarded_nodes(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(3)
    options = quorlock.ClientOptions(ttl=GUARD, restart_guard=GUARD, connect_timeout=0.5)
    client = quorlock.Client(servers.urls, **options)
    wait_until(lambda: all_grant(client))
    lease = client.lock("r", auto_extend=False).acquire()
    servers[0].restart()
    wait_until(lambda: all_voted(client, "granted", "guarded"))
    lease.extend()
    wait_until(lambda: servers[0].command("EXISTS", "r") == 1)
    # The guarded node has the key again, but its confirmation does not count.
    servers[1].kill()
    with pytest.raises(quorlock.QuorumError) as caught:
        lease.extend()
    assert outcomes_of(caught.value)[:2] == ["guarded", "unreachable"]
    assert lease.valid


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


def test_repair_leaves_no_key_of_a_released_lease(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(3)
    client = quorlock.Client(servers.urls, ttl=60, node_timeout=1)
    for _ in range(500):
        lease = client.lock("r").acquire()
        wait_until(lambda: servers[2].command("DEL", "r") == 1)
        lease.extend()  # repairs the key in the background
        assert lease.release()
    wait_until(lambda: keys(servers) == [])
