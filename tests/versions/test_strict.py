"""Servers that refuse scripts that access undeclared keys. The tests in `core/src/testing/scripts`
test single requests with the same rule."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest
from command_line import CommandLine
from nodes import is_everywhere, queued
from servers import ServerReplyError, Servers, encode_command, read_reply
from strict import Strict
from waiting import TIMEOUT, wait_until

import quorlock


@pytest.fixture
def strict(servers: Servers) -> Iterator[list[Strict]]:
    """Strict servers in front of the real servers."""
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Strict(server))) for server in servers]


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


def test_no_operation_accesses_undeclared_keys(strict: list[Strict], servers: Servers) -> None:
    urls = [server.url for server in strict]
    options = quorlock.ClientOptions(ttl=600, wait=TIMEOUT, node_timeout=5)
    with (
        quorlock.Client(urls, **options) as client,
        quorlock.Client(urls, **options) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        for lock in (
            client.lock("a", "b", mode={"b": "shared"}),
            client.semaphore("c", limit=2, permits=2),
        ):
            lease = lock.acquire()
            assert lock.try_acquire() is None
            lease.extend(700)
            servers[0].command("FLUSHALL")
            lease.extend()  # repairs the keys
            assert other.adopt(lease.detach()).release(keep=0.01)
        writer = client.lock("r").acquire()
        wait_until(lambda: is_everywhere(servers, "r", writer.token))
        waiting = pool.submit(other.lock("r", mode="shared").acquire)
        wait_until(lambda: queued(servers) == [1, 1, 1])
        writer.downgrade()
        reader = waiting.result(TIMEOUT)
        assert len(client.status("r").readers) == 2
        assert writer.release()
        wait_until(lambda: (upgraded := reader.try_upgrade()) is not None and upgraded.release())
        assert client.semaphore("c", limit=2).status().limit == 2
        assert {node.outcome for node in client.force_release("r")} == {"missing"}

        def lead(lease: quorlock.Lease) -> int:
            assert next(iter(other.watch("r"))).fence == lease.fence
            following = pool.submit(other.elect("r", holder="b").run, lambda lease: lease.fence)
            wait_until(lambda: lease.hand_over("b") or not lease.valid)
            fence: int = following.result(TIMEOUT)
            return fence

        assert client.elect("r", holder="a").run(lead) > reader.fence
    assert [server.refused() for server in strict] == [[]] * len(strict)


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
