"""Runs the table of connection kinds on real servers; see tests/vectors/README.md."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fleet.group import Group
from fleet.program import start
from rows import expect, load
from servers import Unavailable
from waiting import TIMEOUT, wait_until

import quorlock

VECTORS = load("connections.json")

CLOCK_ERROR = 4_000_000
"""The microseconds by which the fences of two clients may be out of order after all nodes lost
their counters."""

LONG = 600.0
"""A time, in seconds, longer than any test."""

NO_RETRIES: dict[str, Any] = {"ttl": LONG, "wait": LONG, "retry_delay": (LONG, LONG)}
"""Options with which a waiter can get the lock only if it is notified."""


class Setups:
    """The servers of the table. Each is started by the first case that needs it."""

    def __init__(self) -> None:
        self._started: dict[str, Group] = {}

    def nodes(self, case: dict[str, Any]) -> list[str]:
        """Returns the URLs of a case, with the addresses of the running servers."""
        return [re.sub(r"{([\w-]+)\.(\w+)}", self._fill_in, url) for url in case["nodes"]]

    def of(self, case: dict[str, Any]) -> list[Group]:
        """Returns the servers that a case uses."""
        names = re.findall(r"{([\w-]+)\.", str(case["nodes"]))
        return [self._started[name] for name in dict.fromkeys(names)]

    def close(self) -> None:
        for group in self._started.values():
            group.close()

    def _fill_in(self, placeholder: re.Match[str]) -> str:
        name, field = placeholder.groups()
        if name not in self._started:
            self._started[name] = start(VECTORS["servers"][name])
        return str(self._started[name].describe()[0][field])


@pytest.fixture(scope="module")
def setups() -> Iterator[Setups]:
    setups = Setups()
    yield setups
    setups.close()


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["what"])
def test_a_connection_works_or_fails_as_the_table_says(
    case: dict[str, Any], setups: Setups
) -> None:
    try:
        nodes = setups.nodes(case)
    except Unavailable as reason:
        pytest.skip(str(reason))
    if case.get("error") is None:
        use(nodes, case, setups.of(case))
        return

    # With a silent server, the acquire must fail after the default timeout. With any other server,
    # the client learns the reason, so the error must come early even if the timeout is long.
    options: dict[str, Any] = {} if case.get("silent") else {"connect_timeout": TIMEOUT}

    def attempt() -> None:
        with quorlock.Client(nodes, **options) as client:
            client.lock("r", wait=0).acquire()

    began = time.monotonic()
    expect(case, attempt)
    assert time.monotonic() - began < TIMEOUT / 2, "the error was delayed until the timeout"


def use(nodes: list[str], case: dict[str, Any], groups: list[Group]) -> None:
    """Uses every operation of a lock on these nodes."""
    resource = case["what"]
    with (
        quorlock.Client(nodes, **NO_RETRIES) as holder,
        quorlock.Client(nodes, **NO_RETRIES) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        lease = holder.lock(resource).acquire()
        assert other.lock(resource).locked()
        with pytest.raises(quorlock.LockTimeoutError) as caught:
            other.lock(resource, wait=0).acquire()
        shown = f"{holder!r} {lease!r} {caught.value} {caught.value.nodes} {holder.doctor()}"
        for secret in case.get("never", []):
            assert secret not in shown
        lease.extend(2 * LONG)
        assert lease.remaining > LONG

        before = _refusals(other)
        waiting = pool.submit(other.lock(resource).acquire)
        wait_until(lambda: _refusals(other) > before)
        assert lease.release()
        following = waiting.result(TIMEOUT)
        assert following.fence > lease.fence

        for group in groups:
            group.flush()
        with pytest.raises(quorlock.LeaseLostError):
            following.extend()
        assert not following.valid
        last = holder.lock(resource).acquire()
        # The nodes have lost their counters, so the fence depends on the client's own estimate of
        # the node time. It may be slightly smaller than the fence of the other client.
        assert last.fence > following.fence - CLOCK_ERROR
        assert last.release()
        assert not other.lock(resource).locked()
        assert all("noperm" not in node.outcomes for node in holder.stats().nodes)


def _refusals(client: quorlock.Client) -> int:
    """Returns the number of requests of this client that failed because the lock was held."""
    return sum(node.outcomes.get("held", 0) for node in client.stats().nodes)
