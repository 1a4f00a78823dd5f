"""A master that sentinels monitor: locks across failovers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from servers import Sentinel
from waiting import TIMEOUT, wait_until

import quorlock


@pytest.fixture
def service() -> Iterator[Sentinel]:
    with Sentinel(password="secret", sentinel_password="hidden") as service:
        yield service


@pytest.fixture
def connect(service: Sentinel) -> Iterator[Callable[..., quorlock.Client]]:
    """`connect(**options)` returns a client of the Sentinel deployment."""
    clients: list[quorlock.Client] = []

    def connect(**options: float) -> quorlock.Client:
        settings: dict[str, Any] = {"ttl": 600.0, "wait": TIMEOUT, **options}
        clients.append(quorlock.Client([service.url], **settings))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def wait_replicated(service: Sentinel, *keys: str) -> None:
    """Waits until the replica has these keys."""
    wait_until(lambda: service[1].command("EXISTS", *keys) == len(keys))


def test_a_lease_survives_the_failover_of_a_frozen_master(
    service: Sentinel, connect: Callable[..., quorlock.Client]
) -> None:
    holder, other = connect(), connect()
    lease = holder.lock("r").acquire()
    assert other.lock("r").locked()
    wait_replicated(service, "r", "{r}:fence")
    service[0].freeze()
    assert service.fail_over() == 1
    wait_until(lambda: extends(lease))
    assert service[1].command("GET", "r") == lease.token
    assert acquired(other, "s").release()
    with pytest.raises(quorlock.LockTimeoutError):
        other.lock("r", wait=0).acquire()

    service[0].thaw()
    service.wait_demoted(0)
    wait_until(lambda: extends(lease))
    assert lease.release()
    assert acquired(other, "r").fence > lease.fence


def test_a_waiter_gets_the_lock_after_a_failover(
    service: Sentinel, connect: Callable[..., quorlock.Client]
) -> None:
    # With the default timeout, the waiter could give up while the master is down.
    holder, other = connect(), connect(connect_timeout=TIMEOUT)
    lease = holder.lock("r").acquire()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.lock("r").acquire)
        wait_until(lambda: service[0].command("EXISTS", "{r}:queue") == 1)
        wait_replicated(service, "r", "{r}:queue")
        service[0].kill()
        service.fail_over()
        assert not waiting.done()
        wait_until(lambda: extends(lease))
        assert lease.release()
        assert waiting.result(TIMEOUT).fence > lease.fence


def test_a_lease_survives_a_manual_failover(
    service: Sentinel, connect: Callable[..., quorlock.Client]
) -> None:
    client = connect()
    lease = client.lock("r").acquire()
    wait_replicated(service, "r", "{r}:fence")
    assert service.fail_over() == 1
    service.wait_demoted(0)
    wait_until(lambda: extends(lease))
    assert service[1].command("GET", "r") == lease.token
    assert lease.release()


def test_a_promoted_master_without_the_key_does_not_vote_within_the_guard(
    service: Sentinel, connect: Callable[..., quorlock.Client]
) -> None:
    ttl = 2.5
    holder, other = (connect(ttl=ttl, restart_guard=ttl) for _ in range(2))
    assert acquired(other, "known").release()
    assert acquired(holder, "known").release()
    lease = holder.lock("r", auto_extend=False).acquire()
    wait_replicated(service, "r", "{r}:fence")
    service[0].kill()
    # Delete the key on the replica, as if it had not been replicated before the failover.
    service[1].command("CONFIG", "SET", "replica-read-only", "no")
    service[1].command("DEL", "r")
    service.fail_over()
    following = acquired(other, "r")
    assert not lease.valid
    assert following.fence > lease.fence


def test_a_lease_whose_key_a_failover_lost_is_reported_as_lost(
    service: Sentinel, connect: Callable[..., quorlock.Client]
) -> None:
    lease = connect().lock("r").acquire()
    wait_replicated(service, "r", "{r}:fence")
    service[0].kill()
    service[1].command("CONFIG", "SET", "replica-read-only", "no")
    service[1].command("DEL", "r")
    service.fail_over()
    with pytest.raises(quorlock.LeaseLostError):
        wait_until(lambda: extends(lease))
    assert not lease.valid


def test_the_doctor_warns_that_a_failover_can_lose_keys(
    service: Sentinel, connect: Callable[..., quorlock.Client]
) -> None:
    diagnosis = connect().doctor()
    [node] = diagnosis.nodes
    assert (node.reachable, node.role, node.replicas) == (True, "master", 1)
    [found] = (finding for finding in node.findings if finding.check == "replication")
    assert (found.level, "sentinels" in found.message) == ("warning", True)
    assert "secret" not in str(diagnosis)
    assert "hidden" not in str(diagnosis)


def acquired(client: quorlock.Client, resource: str) -> quorlock.Lease:
    """Retries the acquire until there is a quorum, and returns the lease."""
    leases: list[quorlock.Lease] = []

    def is_acquired() -> bool:
        with suppress(quorlock.QuorumError):
            leases.append(client.lock(resource).acquire())
        return bool(leases)

    wait_until(is_acquired)
    return leases[0]


def extends(lease: quorlock.Lease) -> bool:
    """Extends the lease, and returns whether this succeeded."""
    try:
        lease.extend()
    except quorlock.QuorumError:
        return False
    return True
