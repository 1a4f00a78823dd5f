"""All modes of the lock on servers that refuse scripts that access undeclared keys."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import pytest
from command_line import CommandLine
from nodes import is_everywhere, is_free, keys, listeners, queued
from servers import ServerReplyError, Servers, encode_command, read_reply
from strict import Strict
from waiting import TIMEOUT, wait_until

import quorlock

LONG = 600.0
"""A time, in seconds, longer than any test."""


@pytest.fixture
def strict(servers: Servers) -> Iterator[list[Strict]]:
    """Strict servers in front of the real servers."""
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Strict(server))) for server in servers]


@pytest.fixture
def connect(strict: list[Strict]) -> Iterator[Callable[..., quorlock.Client]]:
    """`connect(**options)` returns a client. Afterwards, no script must have been refused."""
    with ExitStack() as clients:

        def connect(**options: Any) -> quorlock.Client:
            # With such a delay between retries, a waiter gets the lock only if it is notified.
            defaults: dict[str, Any] = {
                "ttl": LONG,
                "wait": LONG,
                "retry_delay": (LONG, LONG),
                "node_timeout": 5,
            }
            client = quorlock.Client([server.url for server in strict], **(defaults | options))
            return clients.enter_context(client)

        yield connect
    assert [server.refused() for server in strict] == [[]] * len(strict)


def one_of_each(client: quorlock.Client) -> list[quorlock.Lock | quorlock.Semaphore]:
    """Returns an exclusive lock, a shared lock, and a semaphore with a single permit."""
    return [client.lock("a"), client.lock("b", mode="shared"), client.semaphore("c", limit=1)]


def test_undeclared_key_is_refused(strict: list[Strict], servers: Servers) -> None:
    with socket.create_connection(("127.0.0.1", strict[0].port)) as connection:
        reader = connection.makefile("rb")
        # A pipeline: other commands may access all keys.
        for command in [
            ("EVAL", "return redis.call('SET', KEYS[1], 1)", 1, "a key [*]"),
            ("EVAL", "return redis.call('GET', 'other')", 1, "a key [*]"),
            ("SET", "other", 2),
            ("EVAL", "return redis.pcall('GET', 'other')", 0),
        ]:
            connection.sendall(encode_command(*command))
        assert read_reply(reader) == "OK"
        with pytest.raises(ServerReplyError, match="access"):
            read_reply(reader)
        assert read_reply(reader) == "OK"
        with pytest.raises(ServerReplyError, match="access"):
            read_reply(reader)
    assert servers[0].command("GET", "a key [*]") == "1"
    assert set(strict[0].refused()) == {"other"}


def test_exclusive_lock(connect: Callable[..., quorlock.Client], servers: Servers) -> None:
    holder, other = connect(), connect()
    with ThreadPoolExecutor(1) as pool:
        lease = holder.lock("r").acquire()
        assert other.lock("r").locked()
        assert other.lock("r").try_acquire() is None
        lease.extend(2 * LONG)
        assert lease.remaining > LONG
        wait_until(lambda: is_everywhere(servers, "r", lease.token))
        waiting = pool.submit(other.lock("r").acquire)
        wait_until(lambda: queued(servers) == [1, 1, 1])
        assert other.status("r").waiters == 1
        assert lease.release()
        following = waiting.result(TIMEOUT)
        assert following.fence > lease.fence
        assert following.release()
    wait_until(lambda: not keys(servers))


def test_several_resources(connect: Callable[..., quorlock.Client], servers: Servers) -> None:
    client = connect()
    with client.lock("a", "b", "c", mode={"c": "shared"}) as lease:
        lease.extend()
        assert lease.fences.keys() == {"a", "b", "c"}
        assert client.lock("b").try_acquire() is None
        with client.lock("c", mode="shared"):
            pass
    wait_until(lambda: not keys(servers))


def test_shared_lock(connect: Callable[..., quorlock.Client], servers: Servers) -> None:
    client, other = connect(), connect()
    with ThreadPoolExecutor(1) as pool:
        writer = client.lock("r").acquire()
        wait_until(lambda: is_everywhere(servers, "r", writer.token))
        waiting = pool.submit(other.lock("r", mode="shared").acquire)
        wait_until(lambda: queued(servers) == [1, 1, 1])
        writer.downgrade()
        reader = waiting.result(TIMEOUT)
        assert client.lock("r").locked()
        assert not client.lock("r", mode="shared").locked()
        assert len(client.status("r").readers) == 2
        reader.extend()
        assert reader.try_upgrade() is None
        assert writer.release()
        # A node on which the reader tried before the DOWNGRADE arrived may have no share of the
        # reader, and keeps the reader's place in the queue.
        wait_until(lambda: all(s.command("ZCARD", "{r}:shared") in (0, 1) for s in servers))
        upgraded = reader.try_upgrade()
        assert upgraded is not None
        assert upgraded.fence > reader.fence

        waiting = pool.submit(client.lock("r", mode="shared").acquire)
        wait_until(lambda: all(queued(servers)))
        assert upgraded.release()
        assert waiting.result(TIMEOUT).release()
    wait_until(lambda: not keys(servers))


def test_semaphore(connect: Callable[..., quorlock.Client], servers: Servers) -> None:
    client, other = connect(), connect()
    semaphore = client.semaphore("api", limit=2)
    with ThreadPoolExecutor(1) as pool:
        one, two = semaphore.acquire(), other.semaphore("api", limit=2).acquire()
        assert {one.slot, two.slot} == {0, 1}
        assert semaphore.try_acquire() is None
        waiting = pool.submit(semaphore.acquire)
        wait_until(lambda: semaphore.status().waiters == 1)
        assert (semaphore.status().free, len(semaphore.status().holders)) == (0, 2)
        one.extend()
        assert two.release()
        three = waiting.result(TIMEOUT)
        assert three.slot == two.slot
        assert three.fence > two.fence
        assert one.release()
        assert three.release()
    with client.semaphore("api", limit=2, permits=2) as both:
        assert set(both.slots) == {0, 1}
    wait_until(lambda: not keys(servers))


def test_renewal(connect: Callable[..., quorlock.Client]) -> None:
    client = connect(ttl=1, node_timeout=0.5)
    leases = [lock.acquire() for lock in one_of_each(client)]
    assert not leases[0].wait_lost(2.5)
    assert all(lease.valid for lease in leases)
    assert all(lease.release() for lease in leases)


def test_hand_over(connect: Callable[..., quorlock.Client], servers: Servers) -> None:
    # An adopter that is refused tries once more, before it reports that it was too late.
    client, other = connect(retry_delay=(0.01, 0.1)), connect()
    for lock in one_of_each(client):
        lease = lock.acquire()
        text = lease.detach(within=LONG)
        adopted = other.adopt(text)
        assert adopted.fence > lease.fence
        with pytest.raises(quorlock.LeaseLostError):
            client.adopt(text)
        adopted.extend()
        assert adopted.release()
    wait_until(lambda: not keys(servers))


def test_keep(connect: Callable[..., quorlock.Client], servers: Servers) -> None:
    client = connect(wait=0)
    for lock in one_of_each(client):
        assert lock.acquire().release(keep=LONG)
    for name in ("a", "b"):
        assert client.lock(name).locked()
    assert client.semaphore("c", limit=1).try_acquire() is None
    client.force_release("a")
    client.force_release("b")
    wait_until(lambda: is_free(servers, "a") and is_free(servers, "b"))


def test_election(connect: Callable[..., quorlock.Client], servers: Servers) -> None:
    with ThreadPoolExecutor(1) as pool:

        def lead(lease: quorlock.Lease) -> int:
            assert next(iter(connect().watch("r"))).fence == lease.fence
            candidate = connect().elect("r", holder="b")
            following = pool.submit(candidate.run, lambda successor: successor.fence)
            wait_until(lambda: listeners(servers, "r", "b") == [1, 1, 1])
            assert lease.hand_over("b", within=TIMEOUT)
            assert following.result(TIMEOUT) > lease.fence
            return lease.fence

        assert connect().elect("r", holder="a").run(lead) > 0
    wait_until(lambda: is_free(servers, "r"))


def test_repair(connect: Callable[..., quorlock.Client], servers: Servers) -> None:
    client = connect()
    leases = [lock.acquire() for lock in one_of_each(client)]
    tokens = dict(zip(["a", "{c}:permit:0"], [leases[0].token, leases[2].token], strict=True))
    servers[0].restart()  # without its keys

    def is_repaired() -> bool:
        for lease in leases:
            lease.extend()
        readers = servers[0].command("ZCARD", "{b}:shared")
        return readers == 1 and all(is_everywhere(servers, *each) for each in tokens.items())

    wait_until(is_repaired)
    assert all(lease.release() for lease in leases)


def test_doctor_says_that_locks_cannot_be_listed(strict: list[Strict]) -> None:
    with quorlock.Client([server.url for server in strict]) as client:
        diagnosis = client.doctor()
    for node in diagnosis.nodes:
        assert node.reachable
        assert set(node.permissions.values()) == {"allowed"}
        (found,) = [finding for finding in node.findings if finding.check == "permissions"]
        assert found.level == "warning"
        assert "cannot be listed" in found.message


def test_list_is_refused_and_status_is_not(strict: list[Strict], servers: Servers) -> None:
    command = CommandLine("pip", [server.url for server in strict])
    done = command.run("list")
    assert done.returncode != 0
    assert "0 of 3 did" in done.stderr
    assert all(server.refused() == ["scan"] for server in strict)
    assert command.run("status", "r").returncode == 0
