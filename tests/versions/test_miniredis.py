"""The lock on miniredis, an imitation of Redis for the tests of Go programs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from interop.installing import Ecosystem
from versions.installing import MINIREDIS
from waiting import TIMEOUT, wait_until

import quorlock

LONG = 600.0
"""A time, in seconds, longer than any test."""


@pytest.fixture
def connect(
    install: Callable[[Ecosystem], str | None],
) -> Iterator[Callable[..., quorlock.Client]]:
    """`connect(**options)` returns a client of three nodes."""
    if (reason := install(MINIREDIS)) is not None:
        pytest.skip(f"miniredis cannot be installed here: {reason}")
    with (
        subprocess.Popen(
            [*MINIREDIS.program, "3"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as servers,
        ExitStack() as clients,
    ):
        assert servers.stdout is not None
        urls = [servers.stdout.readline().strip() for _ in range(3)]

        def connect(**options: Any) -> quorlock.Client:
            defaults: dict[str, Any] = {"ttl": LONG, "wait": LONG, "node_timeout": 5}
            return clients.enter_context(quorlock.Client(urls, **(defaults | options)))

        yield connect


def test_all_modes_work(connect: Callable[..., quorlock.Client]) -> None:
    # With such a delay between retries, a waiter gets the lock only if it is notified.
    client, other = connect(retry_delay=(LONG, LONG)), connect(retry_delay=(LONG, LONG))
    locks: list[Callable[[quorlock.Client], quorlock.Lock | quorlock.Semaphore]] = [
        lambda client: client.lock("a", "b"),
        lambda client: client.lock("c", mode="shared"),
        lambda client: client.semaphore("d", limit=1),
    ]
    with ThreadPoolExecutor(1) as pool:
        for lock in locks:
            lease = lock(client).acquire()
            lease.extend()
            adopted = other.adopt(lease.detach(within=LONG))
            assert adopted.release()

        writer = client.lock("r").acquire()
        waiting = pool.submit(other.lock("r", mode="shared").acquire)
        wait_until(lambda: client.status("r").waiters == 1)
        writer.downgrade()
        reader = waiting.result(TIMEOUT)
        assert writer.release()
        upgraded = reader.try_upgrade()
        assert upgraded is not None
        waiting = pool.submit(client.lock("r").acquire)
        wait_until(lambda: client.status("r").waiters == 1)
        assert upgraded.release()
        assert waiting.result(TIMEOUT).release()

        semaphore = client.semaphore("api", limit=2)
        one, two = semaphore.acquire(), semaphore.acquire()
        waiting = pool.submit(other.semaphore("api", limit=2).acquire)
        wait_until(lambda: semaphore.status().waiters == 1)
        assert one.release()
        three = waiting.result(TIMEOUT)
        assert three.slot == one.slot
        assert two.release()
        assert three.release()
    assert connect().elect("leader", holder="a").run(lambda lease: lease.fence) > 0


def test_lease_expires(connect: Callable[..., quorlock.Client]) -> None:
    client, other = connect(), connect()
    lease = client.lock("r", ttl=0.5, auto_extend=False).acquire()
    following = other.lock("r").acquire()
    assert following.fence > lease.fence
    assert not lease.release()
    assert following.release()


def test_info_is_not_supported(connect: Callable[..., quorlock.Client]) -> None:
    diagnosis = connect().doctor()
    assert diagnosis.level == "warning"
    for node in diagnosis.nodes:
        assert node.reachable
        assert node.kind is None
        troubled = {each.check for each in node.findings if each.level != "ok"}
        unseen = {"replication", "cluster", "eviction", "memory", "persistence"}
        assert troubled == {"permissions", "server", *unseen}
