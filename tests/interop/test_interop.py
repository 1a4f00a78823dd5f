"""Mixed fleets: quorlock and real releases of other libraries share keys and exclude each other.

The tests use the Python client. Node.js and Rust run the same core, and tests/cross shows that they
share keys with Python.
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
"""The ttl, in milliseconds, of locks that must not expire during a test."""

TURN_TTL = 15_000
"""The ttl, in milliseconds, of locks that are held briefly. It is much shorter than the time limit
of the test: a library that returns when a majority has granted may leave keys on the other nodes
until they expire."""

TURNS = 10
"""The number of times that each side must get the lock while the other side competes for it."""

MARKER = "quorlock:shared"
"""The value of the lock key while a resource is read."""


@dataclass
class Fleet:
    """Another lock library (the peer) and a quorlock client on the same nodes."""

    peer: Peer
    process: PeerProcess
    servers: list[Server]
    client: quorlock.Client
    resource: str

    @property
    def key(self) -> str:
        """The key of the resource, as the peer builds it."""
        return self.peer.prefix + self.resource

    @property
    def majority(self) -> int:
        return len(self.servers) // 2 + 1

    def start_process(self) -> PeerProcess:
        """Starts another process that runs the peer."""
        return PeerProcess(self.peer, [server.url for server in self.servers])

    def start_client(self) -> quorlock.Client:
        """Creates another quorlock client."""
        return new_client(self.peer, self.servers)

    def tokens(self) -> list[object]:
        """Returns the value of the key on each node."""
        return [server.command("GET", self.key) for server in self.servers]

    def await_stragglers(self) -> None:
        """Waits until all nodes hold the key. Some libraries return when a majority has granted. A
        grant on another node could then arrive after a release, and leave a key there."""
        wait_until(lambda: None not in self.tokens())

    def delete_key(self) -> None:
        """Deletes the key on all nodes."""
        for server in self.servers:
            server.command("DEL", self.key)

    def client_was_refused(self) -> bool:
        """Returns whether a node has refused the client because the lock is held."""
        return any(node.outcomes.get("held") for node in self.client.stats().nodes)

    def is_free(self) -> bool:
        return all(server.command("EXISTS", self.key) == 0 for server in self.servers)


def new_client(peer: Peer, servers: list[Server]) -> quorlock.Client:
    return quorlock.Client(
        [server.url for server in servers],
        key_prefix=peer.prefix,
        ttl=TTL / 1000,
        wait=TIMEOUT,
        # Long, so that all nodes vote even on a loaded machine.
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


def test_a_peer_excludes_quorlock(fleet: Fleet) -> None:
    assert fleet.process.acquire(fleet.resource, TTL)
    fleet.await_stragglers()
    kinds = [server.command("TYPE", fleet.key) for server in fleet.servers]
    assert kinds == ["string"] * len(fleet.servers), "the key is not a plain string"
    with pytest.raises(quorlock.LockTimeoutError) as caught:
        fleet.client.lock(fleet.resource, wait=0).acquire()
    outcomes = [node.outcome for node in caught.value.nodes]
    assert outcomes.count("held") >= fleet.majority
    fleet.process.release(fleet.resource)
    assert fleet.client.lock(fleet.resource).acquire().release()
    wait_until(fleet.is_free)


def test_quorlock_excludes_a_peer(fleet: Fleet) -> None:
    with fleet.client.lock(fleet.resource) as lease:
        assert not fleet.process.acquire(fleet.resource, TTL)
        lease.check()
        lease.extend()
        assert not fleet.process.acquire(fleet.resource, TTL), "not excluded after an extension"
        assert lease.release()
    # If the peer acquired before the last RELEASE has arrived, that node would stay without a key.
    wait_until(fleet.is_free)
    wait_until(lambda: fleet.process.acquire(fleet.resource, TTL))
    fleet.await_stragglers()
    fleet.process.release(fleet.resource)
    wait_until(fleet.is_free)


def test_readers_exclude_a_peer(fleet: Fleet) -> None:
    config = fleet.client.lock(fleet.resource, mode="shared")
    first = config.acquire()
    with config as last:
        wait_until(lambda: fleet.tokens() == [MARKER] * len(fleet.servers))
        assert not fleet.process.acquire(fleet.resource, TTL)
        last.extend()
        assert first.release()
        assert not fleet.process.acquire(fleet.resource, TTL), "not excluded by the last reader"
    wait_until(fleet.is_free)
    assert fleet.process.acquire(fleet.resource, TTL)
    fleet.await_stragglers()
    fleet.process.release(fleet.resource)
    wait_until(fleet.is_free)


def test_a_peer_excludes_readers(fleet: Fleet) -> None:
    assert fleet.process.acquire(fleet.resource, TTL)
    fleet.await_stragglers()
    theirs = fleet.tokens()
    config = fleet.client.lock(fleet.resource, mode="shared")
    assert config.try_acquire() is None
    assert config.locked()
    assert fleet.tokens() == theirs
    fleet.process.release(fleet.resource)
    with config, config:
        assert not fleet.process.acquire(fleet.resource, TTL)
    wait_until(fleet.is_free)


def test_a_peer_extends_while_quorlock_waits(fleet: Fleet) -> None:
    if not fleet.peer.extends:
        pytest.skip(f"{fleet.peer} has no extension")
    assert fleet.process.acquire(fleet.resource, TTL)
    fleet.await_stragglers()
    with ThreadPoolExecutor() as pool:
        waiter = pool.submit(fleet.client.lock(fleet.resource).acquire)
        wait_until(fleet.client_was_refused)
        assert fleet.process.extend(fleet.resource, 2 * TTL)
        ends = [server.command("PTTL", fleet.key) for server in fleet.servers]
        assert sum(end > TTL for end in ends if isinstance(end, int)) >= fleet.majority
        assert not waiter.done()
        fleet.process.release(fleet.resource)
        assert waiter.result(TIMEOUT).release()
    wait_until(fleet.is_free)


def test_a_peer_cannot_extend_a_lock_that_quorlock_holds(fleet: Fleet) -> None:
    if not fleet.peer.extends:
        pytest.skip(f"{fleet.peer} has no extension")
    assert fleet.process.acquire(fleet.resource, TTL)
    fleet.await_stragglers()
    fleet.delete_key()
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
    fleet.delete_key()
    with fleet.client.lock(fleet.resource) as lease:
        mine: list[object] = [lease.token] * len(fleet.servers)
        wait_until(lambda: fleet.tokens() == mine)
        fleet.process.release(fleet.resource)
        # This acquire follows the release on the same connections, so the nodes have handled both.
        assert not fleet.process.acquire(fleet.resource, TTL)
        assert fleet.tokens() == mine
        lease.extend()
    wait_until(fleet.is_free)


def test_a_late_release_of_a_peer_leaves_the_readers(fleet: Fleet) -> None:
    assert fleet.process.acquire(fleet.resource, TTL)
    fleet.await_stragglers()
    fleet.delete_key()
    with fleet.client.lock(fleet.resource, mode="shared") as lease:
        wait_until(lambda: fleet.tokens() == [MARKER] * len(fleet.servers))
        fleet.process.release(fleet.resource)
        # This acquire follows the release on the same connections, so the nodes have handled both.
        assert not fleet.process.acquire(fleet.resource, TTL)
        assert fleet.tokens() == [MARKER] * len(fleet.servers)
        lease.extend()
    wait_until(fleet.is_free)


def test_a_late_release_of_quorlock_leaves_the_peers_key(fleet: Fleet) -> None:
    with fleet.start_client() as client:
        lease = client.lock(fleet.resource, auto_extend=False).acquire()
        mine: list[object] = [lease.token] * len(fleet.servers)
        wait_until(lambda: fleet.tokens() == mine)
        fleet.delete_key()
        assert fleet.process.acquire(fleet.resource, TTL)
        fleet.await_stragglers()
        theirs = fleet.tokens()
        assert not lease.release()
        with pytest.raises(quorlock.LockTimeoutError):
            client.lock(fleet.resource, wait=0).acquire()
    assert fleet.tokens() == theirs
    fleet.process.release(fleet.resource)
    wait_until(fleet.is_free)


def test_the_lock_of_a_killed_peer_is_free_after_its_ttl(fleet: Fleet) -> None:
    ttl = 1_000
    with fleet.start_process() as process:
        # On a loaded machine, the ttl may end before the peer returns: then try again.
        began = time.monotonic()
        while not process.acquire(fleet.resource, ttl):
            began = time.monotonic()
        process.kill()
    with fleet.client.lock(fleet.resource):
        assert time.monotonic() >= began + ttl / 1000 * 0.98


def test_a_peer_gets_a_lock_that_quorlock_does_not_renew_after_its_ttl(fleet: Fleet) -> None:
    ttl = 1_000
    began = time.monotonic()
    # The lease is neither renewed nor released, as if the process had died.
    lease = fleet.client.lock(fleet.resource, ttl=ttl / 1000, auto_extend=False).acquire()
    wait_until(lambda: fleet.process.acquire(fleet.resource, TURN_TTL))
    assert time.monotonic() >= began + ttl / 1000 * 0.98
    assert not lease.valid
    assert not lease.release()
    # The keys do not expire on all nodes at the same moment: a minority may have refused the peer.
    theirs = [token for token in fleet.tokens() if token not in {None, lease.token}]
    assert len(theirs) >= fleet.majority
    fleet.process.release(fleet.resource)
    wait_until(fleet.is_free)


@dataclass
class Turns:
    """The periods in which either side held the lock, and a counter file that the holder writes."""

    counter: Path
    intervals: list[tuple[float, float]] = field(default_factory=list)
    by_side: dict[str, int] = field(default_factory=lambda: {"peer": 0, "quorlock": 0})
    deadline: float = field(default_factory=lambda: time.monotonic() + TIMEOUT)

    @property
    def wanted(self) -> bool:
        return min(self.by_side.values()) < TURNS and time.monotonic() < self.deadline

    def take(self, side: str) -> None:
        """Increments the counter and records the time. Called by the holder of the lock."""
        start = time.monotonic()
        count = int(self.counter.read_text())
        time.sleep(0.001)
        self.counter.write_text(str(count + 1))
        self.intervals.append((start, time.monotonic()))
        self.by_side[side] += 1


def test_peer_and_quorlock_take_turns_without_overlap(fleet: Fleet, tmp_path: Path) -> None:
    turns = Turns(tmp_path / "counter")
    turns.counter.write_text("0")
    failures: list[BaseException] = []

    def compete(take_turn: Callable[[], None]) -> None:
        try:
            while turns.wanted:
                take_turn()
        except BaseException as error:
            failures.append(error)

    def peer_turn(process: PeerProcess) -> Callable[[], None]:
        def take_turn() -> None:
            if process.acquire(fleet.resource, TURN_TTL):
                turns.take("peer")
                process.release(fleet.resource)
            else:
                time.sleep(random.uniform(0.001, 0.01))

        return take_turn

    def quorlock_turn(client: quorlock.Client) -> Callable[[], None]:
        def take_turn() -> None:
            with client.lock(fleet.resource):
                turns.take("quorlock")

        return take_turn

    with ExitStack() as stack:
        competitors = [peer_turn(stack.enter_context(fleet.start_process())) for _ in range(2)]
        competitors += [quorlock_turn(stack.enter_context(fleet.start_client())) for _ in range(2)]
        threads = [threading.Thread(target=compete, args=[each]) for each in competitors]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
    assert min(turns.by_side.values()) >= TURNS, f"one side starved: {turns.by_side}"
    ordered = sorted(turns.intervals)
    for (_, end), (start, _) in pairwise(ordered):
        assert end <= start, "two clients held the lock at the same time"
    assert int(turns.counter.read_text()) == len(ordered)
