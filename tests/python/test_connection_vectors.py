"""Every kind of connection, on real servers: see tests/vectors/README.md."""

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

NEVER = 600.0
PATIENT: dict[str, Any] = {"ttl": NEVER, "wait": NEVER, "retry_delay": (NEVER, NEVER)}
"""So long that whoever gets the lock within the time of a test was called."""


class Setups:
    """The servers of the vectors, each started when a case needs it first."""

    def __init__(self) -> None:
        self._started: dict[str, Group] = {}

    def nodes(self, case: dict[str, Any]) -> list[str]:
        """The URLs of a case, on the servers that are there."""
        return [re.sub(r"{([\w-]+)\.(\w+)}", self._fill_in, url) for url in case["nodes"]]

    def of(self, case: dict[str, Any]) -> list[Group]:
        """The servers that a case uses."""
        names = re.findall(r"{([\w-]+)\.", str(case["nodes"]))
        return [self._started[name] for name in dict.fromkeys(names)]

    def close(self) -> None:
        for group in self._started.values():
            group.close()

    def _fill_in(self, place: re.Match[str]) -> str:
        name, field = place.groups()
        if name not in self._started:
            self._started[name] = start(VECTORS["servers"][name])
        return str(self._started[name].describe()[0][field])


@pytest.fixture(scope="module")
def setups() -> Iterator[Setups]:
    setups = Setups()
    yield setups
    setups.close()


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["what"])
def test_a_connection(case: dict[str, Any], setups: Setups) -> None:
    try:
        nodes = setups.nodes(case)
    except Unavailable as lack:
        pytest.skip(str(lack))
    if case.get("error") is None:
        use(nodes, case, setups.of(case))
        return

    # A server that is silent is given up on in time; others must tell why they are of no use.
    options: dict[str, Any] = {} if case.get("silent") else {"connect_timeout": TIMEOUT}

    def attempt() -> None:
        with quorlock.Client(nodes, **options) as client:
            client.lock("r", wait=0).acquire()

    began = time.monotonic()
    expect(case, attempt)
    assert time.monotonic() - began < TIMEOUT / 2, "the reason was known at once"


def use(nodes: list[str], case: dict[str, Any], groups: list[Group]) -> None:
    """All that a lock is for, on these nodes."""
    resource = case["what"]
    with (
        quorlock.Client(nodes, **PATIENT) as holder,
        quorlock.Client(nodes, **PATIENT) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        lease = holder.lock(resource).acquire()
        assert other.lock(resource).locked()
        with pytest.raises(quorlock.LockTimeoutError) as caught:
            other.lock(resource, wait=0).acquire()
        shown = f"{holder!r} {lease!r} {caught.value} {caught.value.nodes} {holder.doctor()}"
        for secret in case.get("never", []):
            assert secret not in shown
        lease.extend(2 * NEVER)
        assert lease.remaining > NEVER

        tried = _held(other)
        waiting = pool.submit(other.lock(resource).acquire)
        wait_until(lambda: _held(other) > tried)
        assert lease.release()
        following = waiting.result(TIMEOUT)
        assert following.fence > lease.fence

        for group in groups:
            group.flush()
        with pytest.raises(quorlock.LeaseLostError):
            following.extend()
        assert not following.valid
        last = holder.lock(resource).acquire()
        assert last.fence > following.fence
        assert last.release()
        assert not other.lock(resource).locked()
        assert all("noperm" not in node.outcomes for node in holder.stats().nodes)


def _held(client: quorlock.Client) -> int:
    """How often a node told the client that others have what it wants."""
    return sum(node.outcomes.get("held", 0) for node in client.stats().nodes)
