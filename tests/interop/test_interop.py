"""A mixed fleet: quorlock and real releases of other libraries share keys, and exclude one another.

quorlock's part is played by Python. Node.js and Rust run the same core, and tests/cross shows that
they share keys with Python.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from interop.installing import Ecosystem
from interop.peers import PEERS, Peer, PeerProcess
from servers import Server, Servers
from waiting import TIMEOUT, wait_until

import quorlock

TTL = 60_000
"""Milliseconds, for locks that must not expire during a test."""

TURN_TTL = 15_000
"""Milliseconds, for turns: much shorter than the test may take, since a library that returns when a
majority has granted may leave keys behind on the others."""

TURNS = 10
"""How often each side has to have the lock while the other wants it, too."""


@dataclass
class Fleet:
    """A peer and quorlock, on the same nodes."""

    peer: Peer
    process: PeerProcess
    servers: list[Server]
    client: quorlock.Client
    resource: str

    @property
    def key(self) -> str:
        """The resource's key, by the peer's rule."""
        return self.peer.prefix + self.resource

    @property
    def majority(self) -> int:
        return len(self.servers) // 2 + 1

    def start_process(self) -> PeerProcess:
        """A further process that uses the peer."""
        return PeerProcess(self.peer, [server.url for server in self.servers])

    def start_client(self) -> quorlock.Client:
        """A further client."""
        return new_client(self.peer, self.servers)

    def tokens(self) -> list[object]:
        """What the nodes hold."""
        return [server.command("GET", self.key) for server in self.servers]

    def await_stragglers(self) -> None:
        """Waits until all nodes hold the key. Some libraries return when a majority has granted,
        and a grant that comes after a release, or after `forget`, would stay until its ttl."""
        wait_until(lambda: None not in self.tokens())

    def forget(self) -> None:
        """The nodes lose the key."""
        for server in self.servers:
            server.command("DEL", self.key)

    def somebody_was_refused(self) -> bool:
        """Whether the client has found the lock held, so that it waits for it."""
        return any(node.outcomes.get("held") for node in self.client.stats().nodes)

    def is_free(self) -> bool:
        return all(server.command("EXISTS", self.key) == 0 for server in self.servers)


def new_client(peer: Peer, servers: list[Server]) -> quorlock.Client:
    return quorlock.Client(
        [server.url for server in servers],
        key_prefix=peer.prefix,
        ttl=TTL / 1000,
        wait=TIMEOUT,
        # On a machine that is busy with other things, too, all nodes are to vote.
        node_timeout=20,
        connect_timeout=20,
        retry_delay=(0.002, 0.01),
    )


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with Servers(5) as servers:
        yield servers


@dataclass
class _Started:
    peer: Peer
    process: PeerProcess


@pytest.fixture(scope="module", params=PEERS, ids=str)
def started(
    request: pytest.FixtureRequest,
    install: Callable[[Ecosystem], str | None],
    servers: Servers,
) -> Iterator[_Started]:
    peer: Peer = request.param
    if reason := install(peer.ecosystem):
        pytest.skip(f"{peer} cannot be installed: {reason}")
    with PeerProcess(peer, servers.urls[: peer.nodes]) as process:
        yield _Started(peer, process)


@pytest.fixture
def fleet(request: pytest.FixtureRequest, started: _Started, servers: Servers) -> Iterator[Fleet]:
    nodes = list(servers)[: started.peer.nodes]
    with new_client(started.peer, nodes) as client:
        yield Fleet(started.peer, started.process, nodes, client, request.node.name)


def test_a_peer_keeps_quorlock_out(fleet: Fleet) -> None:
    assert fleet.process.acquire(fleet.resource, TTL)
    fleet.await_stragglers()
    kinds = [server.command("TYPE", fleet.key) for server in fleet.servers]
    assert kinds == ["string"] * len(fleet.servers), "the key that is shared"
    with pytest.raises(quorlock.LockTimeoutError) as caught:
        fleet.client.lock(fleet.resource, wait=0).acquire()
    outcomes = [node.outcome for node in caught.value.nodes]
    assert outcomes.count("held") >= fleet.majority
    fleet.process.release(fleet.resource)
    assert fleet.client.lock(fleet.resource).acquire().release()
    wait_until(fleet.is_free)


def test_quorlock_keeps_a_peer_out(fleet: Fleet) -> None:
    with fleet.client.lock(fleet.resource) as lease:
        assert not fleet.process.acquire(fleet.resource, TTL)
        lease.check()
        lease.extend()
        assert not fleet.process.acquire(fleet.resource, TTL), "nor after an extension"
        assert lease.release()
    wait_until(lambda: fleet.process.acquire(fleet.resource, TTL))
    fleet.await_stragglers()
    fleet.process.release(fleet.resource)
    wait_until(fleet.is_free)


def test_a_peer_extends_while_quorlock_waits(fleet: Fleet) -> None:
    if not fleet.peer.extends:
        pytest.skip(f"{fleet.peer} has no extension")
    assert fleet.process.acquire(fleet.resource, TTL)
    fleet.await_stragglers()
    with ThreadPoolExecutor() as pool:
        waiter = pool.submit(fleet.client.lock(fleet.resource).acquire)
        wait_until(fleet.somebody_was_refused)
        assert fleet.process.extend(fleet.resource, 2 * TTL)
        ends = [server.command("PTTL", fleet.key) for server in fleet.servers]
        assert sum(end > TTL for end in ends if isinstance(end, int)) >= fleet.majority
        assert not waiter.done()
        fleet.process.release(fleet.resource)
        assert waiter.result(TIMEOUT).release()
    wait_until(fleet.is_free)


def test_a_peer_does_not_extend_what_quorlock_has_taken(fleet: Fleet) -> None:
    if not fleet.peer.extends:
        pytest.skip(f"{fleet.peer} has no extension")
    assert fleet.process.acquire(fleet.resource, TTL)
    fleet.await_stragglers()
    fleet.forget()
    with fleet.client.lock(fleet.resource) as lease:
        mine: list[object] = [lease.token] * len(fleet.servers)
        wait_until(lambda: fleet.tokens() == mine)
        assert not fleet.process.extend(fleet.resource, TTL)
        assert not fleet.process.acquire(fleet.resource, TTL)
        assert fleet.tokens() == mine
        lease.extend()
    wait_until(fleet.is_free)


def test_a_late_release_of_a_peer_leaves_quorlocks_key(fleet: Fleet) -> None:
    assert fleet.process.acquire(fleet.resource, TTL)
    fleet.await_stragglers()
    fleet.forget()
    with fleet.client.lock(fleet.resource) as lease:
        mine: list[object] = [lease.token] * len(fleet.servers)
        wait_until(lambda: fleet.tokens() == mine)
        fleet.process.release(fleet.resource)
        # What it asks for now comes behind the release on the same connections.
        assert not fleet.process.acquire(fleet.resource, TTL)
        assert fleet.tokens() == mine
        lease.extend()
    wait_until(fleet.is_free)


def test_a_late_release_of_quorlock_leaves_the_peers_key(fleet: Fleet) -> None:
    with fleet.start_client() as client:
        lease = client.lock(fleet.resource, auto_extend=False).acquire()
        mine: list[object] = [lease.token] * len(fleet.servers)
        wait_until(lambda: fleet.tokens() == mine)
        fleet.forget()
        assert fleet.process.acquire(fleet.resource, TTL)
        fleet.await_stragglers()
        theirs = fleet.tokens()
        assert not lease.release()
        with pytest.raises(quorlock.LockTimeoutError):
            client.lock(fleet.resource, wait=0).acquire()
    assert fleet.tokens() == theirs
    fleet.process.release(fleet.resource)
    wait_until(fleet.is_free)


def test_what_a_killed_peer_held_is_free_after_its_ttl(fleet: Fleet) -> None:
    ttl = 1_000
    with fleet.start_process() as process:
        # A busy machine may let the ttl pass before the peer can say that it holds the lock.
        asked = time.monotonic()
        while not process.acquire(fleet.resource, ttl):
            asked = time.monotonic()
        process.kill()
    with fleet.client.lock(fleet.resource):
        assert time.monotonic() >= asked + ttl / 1000 * 0.98


def test_what_quorlock_lost_is_the_peers_after_its_ttl(fleet: Fleet) -> None:
    ttl = 1_000
    asked = time.monotonic()
    # As if its process had died: nobody extends it, and nobody releases it.
    lease = fleet.client.lock(fleet.resource, ttl=ttl / 1000, auto_extend=False).acquire()
    wait_until(lambda: fleet.process.acquire(fleet.resource, TURN_TTL))
    assert time.monotonic() >= asked + ttl / 1000 * 0.98
    assert not lease.valid
    assert not lease.release()
    # The nodes forget one after the other, so the peer may have found a minority still held.
    theirs = [token for token in fleet.tokens() if token not in {None, lease.token}]
    assert len(theirs) >= fleet.majority
    fleet.process.release(fleet.resource)
    wait_until(fleet.is_free)


@dataclass
class Turns:
    """Who had the lock when, and a counter in a file that only its holder may touch."""

    counter: Path
    intervals: list[tuple[float, float]] = field(default_factory=list)
    by_side: dict[str, int] = field(default_factory=lambda: {"peer": 0, "quorlock": 0})
    deadline: float = field(default_factory=lambda: time.monotonic() + TIMEOUT)

    @property
    def wanted(self) -> bool:
        return min(self.by_side.values()) < TURNS and time.monotonic() < self.deadline

    def take(self, side: str) -> None:
        """What is done with the lock."""
        start = time.monotonic()
        count = int(self.counter.read_text())
        time.sleep(0.001)
        self.counter.write_text(str(count + 1))
        self.intervals.append((start, time.monotonic()))
        self.by_side[side] += 1


def test_turns(fleet: Fleet, tmp_path: Path) -> None:
    turns = Turns(tmp_path / "counter")
    turns.counter.write_text("0")
    failures: list[BaseException] = []

    def fight(take_turn: Callable[[], None]) -> None:
        try:
            while turns.wanted:
                take_turn()
        except BaseException as error:
            failures.append(error)

    def peers_turn(process: PeerProcess) -> Callable[[], None]:
        def take_turn() -> None:
            if process.acquire(fleet.resource, TURN_TTL):
                turns.take("peer")
                process.release(fleet.resource)
            else:
                time.sleep(random.uniform(0.001, 0.01))

        return take_turn

    def quorlocks_turn(client: quorlock.Client) -> Callable[[], None]:
        def take_turn() -> None:
            with client.lock(fleet.resource):
                turns.take("quorlock")

        return take_turn

    with ExitStack() as stack:
        fighters = [peers_turn(stack.enter_context(fleet.start_process())) for _ in range(2)]
        fighters += [quorlocks_turn(stack.enter_context(fleet.start_client())) for _ in range(2)]
        threads = [threading.Thread(target=fight, args=[fighter]) for fighter in fighters]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
    assert min(turns.by_side.values()) >= TURNS, f"one side starved: {turns.by_side}"
    ordered = sorted(turns.intervals)
    for (_, end), (start, _) in pairwise(ordered):
        assert end <= start, "two had the lock at a time"
    assert int(turns.counter.read_text()) == len(ordered)
