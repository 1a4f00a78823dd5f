"""The names of holders, the status of a resource, and forced releases."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from servers import Servers
from waiting import wait_until

import quorlock

TIMEOUT = 60
# The clocks of the nodes are those of this machine, but the system may correct them meanwhile.
CORRECTION = timedelta(seconds=1)


@pytest.fixture
def client(start_servers: Callable[..., Servers]) -> quorlock.Client:
    return quorlock.Client(start_servers(3).urls, wait=TIMEOUT)


def test_the_default_name_is_the_host_and_the_process(client: quorlock.Client) -> None:
    with client.lock("r") as lease:
        assert lease.holder == f"{socket.gethostname()}:{os.getpid()}"
        assert lease.token[40:] == f";{lease.holder}"
    with client.lock("r", holder=None) as lease:
        assert lease.holder == f"{socket.gethostname()}:{os.getpid()}"


def test_a_timeout_names_the_holder_and_keeps_the_name_when_pickled(
    client: quorlock.Client,
) -> None:
    with client.lock("r", holder="web-7") as lease:
        with pytest.raises(quorlock.LockTimeoutError) as caught:
            client.lock("r", wait=0).acquire()
        error = pickle.loads(pickle.dumps(caught.value))
        assert (error.holder, error.nodes) == ("web-7", caught.value.nodes)
        other = quorlock.Client(client.nodes, wait=0)
        with pytest.raises(quorlock.LockTimeoutError, match='"r" is held by web-7 for up to'):
            other.lock("r").acquire()
        assert lease.token[:9] not in f"{error!r} {error} {error.nodes}"


def test_a_name_with_surrogates_is_refused(client: quorlock.Client) -> None:
    with pytest.raises(quorlock.ConfigError, match="holder must be a string of Unicode characters"):
        client.lock("r", holder="\ud800")


def test_status_reports_the_holder_and_the_waiters(client: quorlock.Client) -> None:
    free = client.status("r")
    assert (free.state, free.holder, free.since, free.remaining) == ("free", None, None, None)
    before = datetime.now(UTC)
    with client.lock("r", holder="web-7", ttl=10) as lease:
        after = datetime.now(UTC)
        waiter = threading.Thread(target=lambda: client.lock("r").acquire().release())
        waiter.start()
        wait_until(lambda: client.status("r").waiters == 1)
        held = client.status("r")
        assert (held.resource, held.state, held.holder) == ("r", "held", "web-7")
        assert (held.token, held.fence) == (lease.token[:8], lease.fence)
        assert held.since is not None
        assert before - CORRECTION <= held.since <= after + CORRECTION
        assert held.remaining is not None
        assert 0 < held.remaining <= 10
        for node in held.nodes:
            assert (node.outcome, node.holder, node.fence) == ("held", "web-7", lease.fence)
            assert (node.token, node.address in client.nodes) == (lease.token[:8], True)
            assert node.remaining is not None
            assert 0 < node.remaining <= 10
        assert lease.token[:9] not in repr(held)
    waiter.join()


def test_a_forced_release_knows_nothing_of_nodes_that_do_not_answer(
    start_servers: Callable[..., Servers],
) -> None:
    servers = start_servers(1)
    servers[0].kill()
    with quorlock.Client(servers.urls, connect_timeout=0.2) as client:
        assert [node.outcome for node in client.force_release("r")] != ["missing"]


def test_asyncio_forms(client: quorlock.Client) -> None:
    async def main() -> None:
        async with client.lock("r", holder="web-7") as lease:
            status = await client.status_async("r")
            assert (status.holder, status.token) == ("web-7", lease.token[:8])
        lease = await client.lock("r").acquire_async()
        released = await client.force_release_async("r")
        assert [node.outcome for node in released] == ["confirmed"] * 3
        await lease.release_async()

    asyncio.run(main())


@pytest.mark.parametrize("resource", ["", 42, None, "\ud800"])
def test_an_invalid_resource_is_a_configuration_error(
    client: quorlock.Client, resource: str
) -> None:
    for use in (client.status, client.force_release):
        with pytest.raises(quorlock.ConfigError):
            use(resource)
    client.close()
    for use in (client.status, client.force_release):
        with pytest.raises(quorlock.ClosedError):
            use("r")
