"""A Redis Cluster as a node: keys on all masters, slots that move, masters that fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from servers import Cluster, ServerReplyError
from waiting import TIMEOUT, wait_until

import quorlock

KEYS = ["bar", "k", "foo"]
"""Three keys, each owned by a different master, in the order of the masters."""


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    """An empty cluster of three masters, shared by the tests that leave its slots unchanged."""
    shared.flush()
    return shared


@pytest.fixture
def connect() -> Iterator[Callable[..., quorlock.Client]]:
    """`connect(cluster, **options)` returns a client of the cluster."""
    clients: list[quorlock.Client] = []

    def connect(cluster: Cluster, **options: Any) -> quorlock.Client:
        settings: dict[str, Any] = {"ttl": 600.0, "wait": TIMEOUT, **options}
        clients.append(quorlock.Client([cluster.url], **settings))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


Connect = Callable[..., quorlock.Client]


def held(cluster: Cluster) -> dict[str, int]:
    """Returns the keys in the cluster except fence keys, each with the index of its server."""
    found: dict[str, int] = {}
    for index, server in enumerate(cluster):
        names = server.command("KEYS", "*")
        assert isinstance(names, list)
        found |= {str(name): index for name in names if not str(name).endswith(":fence")}
    return found


def test_locks_are_stored_on_the_masters_of_their_slots(cluster: Cluster, connect: Connect) -> None:
    client, other = connect(cluster), connect(cluster)
    leases = [client.lock(f"r{number}").acquire() for number in range(30)]
    owners = {f"r{number}": cluster.owner(f"r{number}") for number in range(30)}
    assert held(cluster) == owners
    assert set(owners.values()) == {0, 1, 2}
    for lease in leases:
        lease.extend()
        with pytest.raises(quorlock.LockTimeoutError):
            other.lock(*lease.resources, wait=0).acquire()
        assert lease.release()
        assert not lease.release()
    wait_until(lambda: not held(cluster))


def test_leases_on_all_masters_are_renewed(cluster: Cluster, connect: Connect) -> None:
    client = connect(cluster, ttl=3)
    leases = [client.lock(f"r{number}").acquire() for number in range(30)]
    ends = {lease.resources[0]: end(cluster, lease.resources[0]) for lease in leases}
    wait_until(lambda: all(end(cluster, key) > before for key, before in ends.items()))
    assert all(lease.valid for lease in leases)
    assert all(lease.release() for lease in leases)


def end(cluster: Cluster, key: str) -> int:
    """Returns the Unix time, in milliseconds, at which the key expires."""
    expires = cluster[cluster.owner(key)].command("PEXPIRETIME", key)
    assert isinstance(expires, int)
    return expires


def test_several_resources_must_share_a_slot(cluster: Cluster, connect: Connect) -> None:
    client, other = connect(cluster), connect(cluster)
    with client.lock("{order}:1", "{order}:2") as lease:
        assert lease.fences.keys() == {"{order}:1", "{order}:2"}
        with pytest.raises(quorlock.LockTimeoutError):
            other.lock("{order}:2", wait=0).acquire()
        lease.extend()
    wait_until(lambda: not held(cluster))
    with pytest.raises(quorlock.ConfigError, match="hash tag") as caught:
        client.lock("bar", "foo")
    assert "bar" in str(caught.value)
    assert "foo" in str(caught.value)
    assert not held(cluster)


def test_locks_are_kept_and_refused_correctly_while_their_slot_moves(
    cluster: Cluster, connect: Connect
) -> None:
    client, other = connect(cluster), connect(cluster)
    home = cluster.owner("k")
    target = (home + 1) % 3
    assert other.lock("k").acquire().release()  # leaves the fence key in the slot

    lease = client.lock("k").acquire()
    cluster.begin_move("k", target)
    lease.extend()
    # While a slot moves, both servers refuse a request if only some of its keys exist.
    with pytest.raises((quorlock.LockTimeoutError, quorlock.QuorumError)):
        other.lock("k", wait=0).acquire()
    # Both servers also refuse a request if none of its keys exists.
    with pytest.raises(quorlock.QuorumError):
        client.lock("{k}:new", wait=0).acquire()
    cluster.end_move("k", target)
    lease.extend()
    assert held(cluster) == {"k": target}
    with client.lock("{k}:new"):
        assert held(cluster)["{k}:new"] == target
    with pytest.raises(quorlock.LockTimeoutError):
        other.lock("k", wait=0.1).acquire()
    assert lease.release()
    assert other.lock("k").acquire().fence > lease.fence
    cluster.begin_move("k", home)
    cluster.end_move("k", home)


def test_exclusion_holds_while_slots_move_under_load(cluster: Cluster, connect: Connect) -> None:
    stop = threading.Event()
    inside = threading.Lock()
    fences: list[int] = []

    def work(client: quorlock.Client) -> int:
        done = 0
        while not stop.is_set():
            with client.lock("k") as lease:
                assert inside.acquire(blocking=False), "two clients hold the lock"
                fences.append(lease.fence)
                lease.extend()
                inside.release()
            done += 1
        return done

    home = cluster.owner("k")
    with ThreadPoolExecutor(4) as pool:
        # While the slot moves, acquires may fail. The long timeout lets them be retried.
        clients = [connect(cluster, connect_timeout=TIMEOUT) for _ in range(4)]
        working = [pool.submit(work, client) for client in clients]
        try:
            for turn in range(1, 13):
                cluster.begin_move("k", (home + turn) % 3)
                cluster.end_move("k", (home + turn) % 3)
                wait_until(partial(has_grown, fences, len(fences) + 20, working))
        finally:
            stop.set()
        assert all(future.result(TIMEOUT) for future in working)
    assert fences == sorted(set(fences))
    assert cluster.owner("k") == home
    wait_until(lambda: not held(cluster))


def has_grown(fences: list[int], size: int, working: list[Future[int]]) -> bool:
    """Returns whether there are at least `size` fences, or a worker has ended."""
    return len(fences) >= size or any(future.done() for future in working)


def test_a_server_of_a_cluster_cannot_be_a_node_by_itself(cluster: Cluster) -> None:
    with quorlock.Client([cluster[0].url]) as client:
        with pytest.raises(quorlock.QuorumError, match="redis-cluster://"):
            client.lock("foo", wait=0).acquire()


def test_the_doctor_recognizes_a_cluster(cluster: Cluster, connect: Connect) -> None:
    diagnosis = connect(cluster).doctor()
    [node] = diagnosis.nodes
    assert node.reachable
    assert node.cluster
    assert all(finding.level != "error" for finding in node.findings), str(diagnosis)


def found(client: quorlock.Client, check: str) -> list[tuple[str, str]]:
    """Returns the level and message of the doctor's findings for this check."""
    [node] = client.doctor().nodes
    return [(each.level, each.message) for each in node.findings if each.check == check]


def address(cluster: Cluster, index: int) -> str:
    return f"127.0.0.1:{cluster[index].port}"


def test_the_doctor_examines_all_masters_of_the_clients_keys(connect: Connect) -> None:
    with Cluster() as cluster:
        client = connect(cluster)
        [(level, _)] = found(client, "eviction")
        assert level == "ok"

        cluster[1].command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        [(level, message)] = found(client, "eviction")
        assert level == "warning"
        assert message.startswith(f"{address(cluster, 1)}: maxmemory-policy is allkeys-lru")
        # With this prefix, all keys are on the first master, so the second master is not examined.
        assert cluster.owner("bar") == 0
        [(level, _)] = found(connect(cluster, key_prefix="{bar}:"), "eviction")
        assert level == "ok"

        cluster[0].kill()
        [(level, message)] = found(client, "connection")
        assert level == "error"
        assert address(cluster, 0) in message
        diagnosis = client.doctor()
        assert diagnosis.nodes[0].reachable
        assert [f.level for f in diagnosis.findings if f.check == "majority"] == ["error"]


def test_the_doctor_reports_slots_without_a_master(connect: Connect) -> None:
    with Cluster() as cluster:
        slot = cluster.slot("bar")

        def is_reported(client: quorlock.Client, check: str, text: str) -> bool:
            for server in cluster:
                # Repeat this, because the gossip of other servers may restore the slot.
                with suppress(ServerReplyError):
                    server.command("CLUSTER", "DELSLOTS", slot)
            return any(
                level == "error" and text in message for level, message in found(client, check)
            )

        client = connect(cluster)
        wait_until(lambda: is_reported(client, "cluster", "no master has 1 of the slots"))
        # With this prefix, all keys are in the slot.
        client = connect(cluster, key_prefix="{bar}:")
        text = f"no master of the cluster has slot {slot}"
        wait_until(lambda: is_reported(client, "connection", text))


def test_reconnects_to_all_masters_are_counted(cluster: Cluster, connect: Connect) -> None:
    client = connect(cluster)
    for key in KEYS:
        assert client.lock(key).acquire().release()
    [node] = client.stats().nodes
    assert node.reconnects == 0
    for server in cluster:
        server.command("CLIENT", "KILL", "TYPE", "normal")
    wait_until(lambda: client.stats().nodes[0].reconnects >= len(KEYS))
    assert client.stats().nodes[0].state == "up"


def test_a_frozen_master_does_not_affect_keys_on_other_masters(connect: Connect) -> None:
    with Cluster() as cluster:
        client = connect(cluster)
        leases = [client.lock(key).acquire() for key in KEYS]
        cluster[0].freeze()
        for lease in leases[1:]:
            lease.extend()
            assert lease.release()
            assert client.lock(*lease.resources).acquire().release()
        with pytest.raises(quorlock.QuorumError):
            client.lock("bar", wait=0).acquire()
        # A new client reaches the cluster through the other masters.
        other = connect(cluster)
        assert other.lock("foo").acquire().release()
        cluster[0].thaw()
        leases[0].extend()
        assert leases[0].release()


def test_a_lease_survives_the_failover_of_a_frozen_master(connect: Connect) -> None:
    with Cluster(replicas=1, password="secret") as cluster:
        # With the default timeout, the waiter could give up while the master is down.
        holder, other = connect(cluster), connect(cluster, connect_timeout=TIMEOUT)
        lease = holder.lock("bar").acquire()
        elsewhere = holder.lock("foo").acquire()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(other.lock("bar").acquire)
            wait_until(lambda: "{bar}:queue" in held(cluster))
            wait_until(lambda: "{bar}:queue" in str(cluster[3].command("KEYS", "*")))
            cluster[0].freeze()
            assert cluster.fail_over() == 3
            elsewhere.extend()
            wait_until(lambda: extends(lease))
            assert cluster[3].command("GET", "bar") == lease.token
            assert not waiting.done()
            assert lease.release()
            assert waiting.result(TIMEOUT).fence > lease.fence
        assert elsewhere.release()


def extends(lease: quorlock.Lease) -> bool:
    """Extends the lease, and returns whether this succeeded."""
    try:
        lease.extend()
    except quorlock.QuorumError:
        return False
    return True


def test_a_leader_hands_over_by_name(cluster: Cluster, connect: Connect) -> None:
    key = "foo"  # on the last master
    elections = [connect(cluster).elect(key, holder=name) for name in ("a", "b")]
    leaders = iter(connect(cluster).watch(key))

    def lead(lease: quorlock.Lease) -> int:
        assert next(leaders) == quorlock.Leader("a", lease.fence)
        assert not lease.hand_over("c")
        assert lease.valid
        following = pool.submit(elections[1].run, lambda successor: successor.fence)
        wait_until(lambda: lease.hand_over("b") or not lease.valid)
        assert following.result(TIMEOUT) > lease.fence
        return lease.fence

    with ThreadPoolExecutor() as pool:
        elections[0].run(lead)
    wait_until(lambda: not held(cluster))
