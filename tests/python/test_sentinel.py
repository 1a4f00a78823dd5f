"""A master that sentinels look after: what becomes of a lock when they name another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from servers import Sentinel, Server
from waiting import TIMEOUT, wait_until

import quorlock


@pytest.fixture
def service() -> Iterator[Sentinel]:
    with Sentinel(password="secret", sentinel_password="hidden") as service:
        yield service


@pytest.fixture
def connect(service: Sentinel) -> Iterator[Callable[..., quorlock.Client]]:
    """`connect(**options)` is a client of the service, with the patience that a failover needs."""
    clients: list[quorlock.Client] = []

    def connect(**options: float) -> quorlock.Client:
        patient = {"ttl": 600.0, "wait": TIMEOUT, "connect_timeout": TIMEOUT}
        clients.append(quorlock.Client([service.url], **{**patient, **options}))  # type: ignore[arg-type]
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def replicate(service: Sentinel) -> None:
    """Waits until the replicas have what the master has."""
    assert service.master.command("WAIT", 1, 0) == 1


def down(server: Server, how: str) -> None:
    server.freeze() if how == "frozen" else server.kill()


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_a_lease_outlives_a_failover(
    service: Sentinel, connect: Callable[..., quorlock.Client], how: str
) -> None:
    holder, other = connect(), connect()
    lease = holder.lock("r").acquire()
    assert other.lock("r").locked()
    replicate(service)
    down(service[0], how)
    assert service.fail_over() == 1
    wait_until(lambda: extends(lease))
    assert service[1].command("GET", "r") == lease.token
    with pytest.raises(quorlock.LockTimeoutError):
        other.lock("r", wait=0.1).acquire()
    following = holder.lock("s").acquire()

    service[0].restart() if how == "killed" else service[0].thaw()
    service.wait_demoted(0)
    lease.extend()
    assert lease.release()
    assert other.lock("r").acquire().fence > lease.fence
    assert following.release()


def test_who_waits_gets_the_lock_after_a_failover(
    service: Sentinel, connect: Callable[..., quorlock.Client]
) -> None:
    holder, other = connect(), connect()
    lease = holder.lock("r").acquire()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.lock("r").acquire)
        wait_until(lambda: service[0].command("EXISTS", "{r}:queue") == 1)
        replicate(service)
        service[0].kill()
        service.fail_over()
        assert not waiting.done()
        wait_until(lease.release)
        assert waiting.result(TIMEOUT).fence > lease.fence


def test_a_failover_that_was_asked_for(
    service: Sentinel, connect: Callable[..., quorlock.Client]
) -> None:
    client = connect()
    lease = client.lock("r").acquire()
    replicate(service)
    service.sentinels[0].command("SENTINEL", "FAILOVER", "orders")
    wait_until(lambda: is_agreed(service, 1))
    service.wait_demoted(0)
    wait_until(lambda: extends(lease))
    assert service[1].command("GET", "r") == lease.token
    assert lease.release()


def test_the_guard_keeps_a_master_that_forgot_from_voting(
    service: Sentinel, connect: Callable[..., quorlock.Client]
) -> None:
    ttl = 2.5
    holder, other = (connect(ttl=ttl, restart_guard=ttl) for _ in range(2))
    assert other.lock("known").acquire().release()
    lease = holder.lock("r", auto_extend=False).acquire()
    replicate(service)
    service[0].kill()
    # As if it had not come to be replicated.
    service[1].command("CONFIG", "SET", "replica-read-only", "no")
    service[1].command("DEL", "r")
    service.fail_over()
    following = other.lock("r").acquire()
    assert not lease.valid
    assert following.fence > lease.fence


def test_what_a_failover_lost_is_told(
    service: Sentinel, connect: Callable[..., quorlock.Client]
) -> None:
    lease = connect().lock("r").acquire()
    replicate(service)
    service[0].kill()
    service[1].command("CONFIG", "SET", "replica-read-only", "no")
    service[1].command("DEL", "r")
    service.fail_over()
    with pytest.raises(quorlock.LeaseLostError):
        wait_until(lambda: extends(lease))
    assert not lease.valid


def test_sentinels_that_are_down_are_done_without(
    service: Sentinel, connect: Callable[..., quorlock.Client]
) -> None:
    first = connect()
    assert first.lock("r").acquire().release()
    service.sentinels[0].kill()
    service.sentinels[1].freeze()
    assert connect().lock("r").acquire().release()
    for sentinel in service.sentinels:
        sentinel.kill()
    # Who has found the master needs them no more.
    assert first.lock("r").acquire().release()
    with pytest.raises(quorlock.QuorumError) as caught:
        connect(connect_timeout=1).lock("r", wait=0).acquire()
    [node] = caught.value.nodes
    assert "entinel" in node.detail
    for secret in ("secret", "hidden"):
        assert secret not in f"{caught.value!r} {node}"


def test_the_doctor_tells_what_a_failover_can_lose(
    service: Sentinel, connect: Callable[..., quorlock.Client]
) -> None:
    diagnosis = connect().doctor()
    [node] = diagnosis.nodes
    assert (node.reachable, node.role, node.replicas) == (True, "master", 1)
    assert any("failover" in f.message for f in node.findings if f.level == "warning"), diagnosis
    assert "secret" not in str(diagnosis)
    assert "hidden" not in str(diagnosis)


def extends(lease: quorlock.Lease) -> bool:
    """Whether the lease could be extended now."""
    try:
        lease.extend()
    except quorlock.QuorumError:
        return False
    return True


def is_agreed(service: Sentinel, index: int) -> bool:
    """Whether all sentinels name this server."""
    named = {
        str(sentinel.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "orders"))
        for sentinel in service.sentinels
    }
    return named == {str(["127.0.0.1", str(service[index].port)])}
