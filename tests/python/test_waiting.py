"""Waiting on real servers: notifications, queues, and their failures."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import uvloop
from nodes import is_free, keys, listening, queued
from refusing import deny
from servers import Server, Servers
from waiting import TIMEOUT, wait_until

import quorlock

LONG = 600.0
"""A time, in seconds, longer than any test."""

NO_RETRIES = {"ttl": LONG, "wait": LONG, "retry_delay": (LONG, LONG)}
"""Options with which a waiter can get the lock only if it is notified."""

RETRIES = {"ttl": LONG, "wait": LONG}
"""Options with which a waiter also retries, after the default delays."""

PROGRAMS = Path(__file__).resolve().parent / "programs"

Connect: TypeAlias = Callable[..., quorlock.Client]
Begin: TypeAlias = Callable[[quorlock.Lock], "Future[quorlock.Lease]"]

in_loops = pytest.mark.parametrize("begin", ["asyncio", "uvloop"], indirect=True)
in_threads = pytest.mark.parametrize("begin", ["threads"], indirect=True)


class AcquireInLoop(Future[quorlock.Lease]):
    """An acquire that runs as a task of an event loop. `cancel` cancels the task."""

    def __init__(self, loop: asyncio.AbstractEventLoop, lock: quorlock.Lock) -> None:
        super().__init__()
        self._loop = loop
        self._task: asyncio.Task[quorlock.Lease] | None = None
        loop.call_soon_threadsafe(self._begin, lock)

    def cancel(self) -> bool:
        self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
        return True

    def _begin(self, lock: quorlock.Lock) -> None:
        self._task = self._loop.create_task(lock.acquire_async())
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[quorlock.Lease]) -> None:
        if task.cancelled():
            self.set_exception(asyncio.CancelledError())
        elif error := task.exception():
            self.set_exception(error)
        else:
            self.set_result(task.result())


@pytest.fixture(params=["threads", "asyncio", "uvloop"])
def begin(request: pytest.FixtureRequest) -> Iterator[Begin]:
    """`begin(lock)` starts an acquire in the background and returns a future of its lease."""
    if request.param == "threads":
        with ThreadPoolExecutor(100) as pool:
            yield lambda lock: pool.submit(lock.acquire)
        return
    loop = uvloop.new_event_loop() if request.param == "uvloop" else asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield lambda lock: AcquireInLoop(loop, lock)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def connect(start_servers: object, begin: Begin) -> Iterator[Connect]:
    """`connect(urls, **options)` returns a client that is closed at the end of the test."""
    with ExitStack() as clients:

        def connect(urls: list[str], **options: Any) -> quorlock.Client:
            return clients.enter_context(quorlock.Client(urls, **options))

        yield connect


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    """A list of processes, which are killed at the end of the test."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def begin_in_queue(
    servers: Servers, begin: Begin, client: quorlock.Client, count: int
) -> Future[quorlock.Lease]:
    """Starts an acquire, and returns when the queue of each node has `count` members."""
    waiting = begin(client.lock("r"))
    wait_until(lambda: queued(servers) == [count] * 3)
    return waiting


def is_served(waiting: Future[quorlock.Lease]) -> bool:
    """Waits for the lease and releases it. Returns whether it was still valid."""
    return waiting.result(TIMEOUT).release()


def is_served_if_not_cancelled(waiting: Future[quorlock.Lease]) -> bool:
    """Like `is_served`, for an acquire that may have been cancelled before it got the lock."""
    try:
        return is_served(waiting)
    except asyncio.CancelledError:
        return False


def members(node: Server) -> list[object]:
    """Returns the members of the node's queue, in order."""
    reply = node.command("ZRANGE", "{r}:queue", 0, -1)
    assert isinstance(reply, list)
    return list(reply)


def now(node: Server) -> int:
    """Returns the time of the node's clock, in microseconds."""
    seconds, micros = map(int, node.command("TIME"))  # type: ignore[arg-type]
    return seconds * 1_000_000 + micros


def connections(servers: Servers) -> list[int]:
    """Returns the number of connections to each node."""
    return [str(server.command("CLIENT", "LIST")).count(" addr=") for server in servers]


def refusals(client: quorlock.Client) -> int:
    """Returns the number of requests of this client that failed because the lock was held."""
    return sum(node.outcomes.get("held", 0) for node in client.stats().nodes)


# Notifications


def test_a_release_notifies_the_waiter(servers: Servers, connect: Connect, begin: Begin) -> None:
    holder, waiter = connect(servers.urls, **NO_RETRIES), connect(servers.urls, **NO_RETRIES)
    for _ in range(10):
        lease = holder.lock("r").acquire()
        waiting = begin_in_queue(servers, begin, waiter, 1)
        assert lease.release()
        assert is_served(waiting)
        wait_until(lambda: not keys(servers))


def test_a_release_at_any_moment_is_not_missed(
    servers: Servers, connect: Connect, begin: Begin
) -> None:
    """The release may also come before the waiter has subscribed or entered a queue."""
    holder = connect(servers.urls, **NO_RETRIES)
    for _ in range(10):
        # A new client has no connections yet.
        waiter = connect(servers.urls, **NO_RETRIES)
        for _ in range(5):
            lease = holder.lock("r").acquire()
            waiting = begin(waiter.lock("r"))
            time.sleep(random.random() * 0.004)
            assert lease.release()
            assert is_served(waiting)
    wait_until(lambda: not keys(servers))


def test_a_release_notifies_while_a_node_is_frozen(
    servers: Servers, connect: Connect, begin: Begin
) -> None:
    holder, waiter = connect(servers.urls, **NO_RETRIES), connect(servers.urls, **NO_RETRIES)
    lease = holder.lock("r").acquire()
    servers[0].freeze()
    waiting = begin(waiter.lock("r"))
    wait_until(lambda: queued(list(servers)[1:]) == [1, 1])
    lease.release()
    assert is_served(waiting)
    servers[0].thaw()
    wait_until(lambda: not keys(servers))


def test_a_release_notifies_when_a_node_freezes_during_the_wait(
    servers: Servers, connect: Connect, begin: Begin
) -> None:
    holder, waiter = connect(servers.urls, **NO_RETRIES), connect(servers.urls, **NO_RETRIES)
    lease = holder.lock("r").acquire()
    waiting = begin_in_queue(servers, begin, waiter, 1)
    servers[0].freeze()
    lease.release()
    assert is_served(waiting)
    servers[0].thaw()
    wait_until(lambda: not keys(servers))


def test_a_release_notifies_while_two_of_five_nodes_are_down(
    start_servers: Callable[..., Servers], connect: Connect, begin: Begin
) -> None:
    servers = start_servers(5)
    holder, waiter = connect(servers.urls, **NO_RETRIES), connect(servers.urls, **NO_RETRIES)
    lease = holder.lock("r").acquire()
    waiting = begin(waiter.lock("r"))
    wait_until(lambda: queued(servers) == [1] * 5)
    servers[0].kill()
    servers[1].kill()
    lease.release()
    assert is_served(waiting)


def test_a_waiter_returns_to_the_queue_of_a_restarted_node(
    servers: Servers, connect: Connect, begin: Begin
) -> None:
    holder, waiter = connect(servers.urls, **NO_RETRIES), connect(servers.urls, **NO_RETRIES)
    lease = holder.lock("r").acquire()
    waiting = begin_in_queue(servers, begin, waiter, 1)
    servers[0].restart()
    wait_until(lambda: listening(servers) == [1, 1, 1])
    wait_until(lambda: queued(servers) == [1, 1, 1])
    lease.release()
    assert is_served(waiting)
    wait_until(lambda: not keys(servers))


# Order


@in_loops
def test_a_client_has_one_queue_entry_and_serves_its_waiters_in_order(
    servers: Servers, connect: Connect, begin: Begin
) -> None:
    holder, waiter = connect(servers.urls, **NO_RETRIES), connect(servers.urls, **NO_RETRIES)
    lease = holder.lock("r").acquire()
    waiting = [begin(waiter.lock("r")) for _ in range(200)]
    # An acquire that started later has finished, so all earlier ones have started to wait.
    assert is_served(begin(waiter.lock("another")))
    wait_until(lambda: queued(servers) == [1, 1, 1])
    assert listening(servers) == [1, 1, 1]
    assert lease.release()
    for position, next_ in enumerate(waiting):
        lease = next_.result(TIMEOUT)
        assert not any(other.done() for other in waiting[position + 1 :])
        # A node that refused the current holder may keep the holder's entry until the release.
        assert max(map(len, map(members, servers))) <= 2
        assert listening(servers) == [1, 1, 1]
        assert lease.release()
    wait_until(lambda: not keys(servers))


def test_clients_are_served_in_order(servers: Servers, connect: Connect, begin: Begin) -> None:
    lease = connect(servers.urls, **NO_RETRIES).lock("r").acquire()
    waiting = []
    for count in range(1, 9):
        waiting.append(begin(connect(servers.urls, **NO_RETRIES).lock("r")))
        wait_until(lambda: queued(servers) == [count] * 3)  # noqa: B023
    for next_ in waiting:
        assert lease.release()
        lease = next_.result(TIMEOUT)
    assert lease.release()
    wait_until(lambda: not keys(servers))


# Waiters that give up


@in_loops
def test_a_cancelled_waiter_leaves_the_local_queue_and_the_nodes_queues(
    servers: Servers, connect: Connect, begin: Begin
) -> None:
    holder, waiter = connect(servers.urls, **NO_RETRIES), connect(servers.urls, **NO_RETRIES)
    lease = holder.lock("r").acquire()
    alone = begin_in_queue(servers, begin, waiter, 1)
    alone.cancel()
    wait_until(lambda: is_free(servers, "{r}:queue"))
    first, second, third = (begin(waiter.lock("r")) for _ in range(3))
    wait_until(lambda: queued(servers) == [1, 1, 1])
    before = [members(server) for server in servers]
    first.cancel()
    second.cancel()
    wait_until(lambda: queued(servers) == [1, 1, 1] and members(servers[0]) != before[0])
    assert lease.release()
    assert is_served(third)
    wait_until(lambda: not keys(servers))


@in_loops
def test_a_waiter_cancelled_while_it_is_notified_does_not_block_the_next(
    servers: Servers, connect: Connect, begin: Begin
) -> None:
    holder = connect(servers.urls, **NO_RETRIES)
    first, second = connect(servers.urls, **NO_RETRIES), connect(servers.urls, **NO_RETRIES)
    for _ in range(50):
        lease = holder.lock("r").acquire()
        cancelled = begin_in_queue(servers, begin, first, 1)
        waiting = begin_in_queue(servers, begin, second, 2)
        releasing = threading.Thread(target=lease.release)
        releasing.start()
        time.sleep(random.random() * 0.003)
        cancelled.cancel()
        is_served_if_not_cancelled(cancelled)
        assert is_served(waiting)
        releasing.join()
        wait_until(lambda: not keys(servers))


def test_a_waiter_that_times_out_leaves_the_local_queue_and_the_nodes_queues(
    servers: Servers, connect: Connect, begin: Begin
) -> None:
    holder, waiter = connect(servers.urls, **NO_RETRIES), connect(servers.urls, **NO_RETRIES)
    lease = holder.lock("r").acquire()
    with pytest.raises(quorlock.LockTimeoutError):
        begin(waiter.lock("r", wait=0.1)).result(TIMEOUT)
    wait_until(lambda: is_free(servers, "{r}:queue"))
    first = begin(waiter.lock("r", wait=5))
    wait_until(lambda: queued(servers) == [1, 1, 1])
    second = begin(waiter.lock("r"))
    with pytest.raises(quorlock.LockTimeoutError):
        first.result(TIMEOUT)
    wait_until(lambda: queued(servers) == [1, 1, 1])
    assert lease.release()
    assert is_served(second)
    wait_until(lambda: not keys(servers))


def test_the_wait_is_counted_from_the_start_of_the_acquire(
    servers: Servers, connect: Connect, begin: Begin
) -> None:
    """The time spent behind other waiters in the client's local queue counts towards `wait`."""
    holder, waiter = connect(servers.urls, **NO_RETRIES), connect(servers.urls, **NO_RETRIES)
    lease = holder.lock("r").acquire()
    first = begin_in_queue(servers, begin, waiter, 1)
    began = time.monotonic()
    short = [begin(waiter.lock("r", wait=wait)) for wait in (0.3, 0.2, 0.1)]
    last = begin(waiter.lock("r"))
    for waiting, wait in zip(short, (0.3, 0.2, 0.1), strict=True):
        with pytest.raises(quorlock.LockTimeoutError, match="held by others") as caught:
            waiting.result(TIMEOUT)
        assert time.monotonic() - began >= wait
        assert [node.address for node in caught.value.nodes] == servers.urls
        outcomes = [node.outcome for node in caught.value.nodes]
        assert outcomes.count("held") >= 2
    assert lease.release()
    assert is_served(first)
    assert is_served(last)
    wait_until(lambda: not keys(servers))


INTERRUPTED = """
import signal, sys, quorlock
# SIGINT is ignored if the tests run in the background of a shell.
signal.signal(signal.SIGINT, signal.default_int_handler)
client = quorlock.Client(sys.argv[1:], ttl=600, wait=600, retry_delay=(600, 600))
try:
    client.lock("r").acquire()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.stdin.readline()
"""


@in_threads
def test_an_interrupted_waiter_leaves_the_queue(
    servers: Servers, connect: Connect, begin: Begin, processes: list[subprocess.Popen[str]]
) -> None:
    holder, waiter = connect(servers.urls, **NO_RETRIES), connect(servers.urls, **NO_RETRIES)
    lease = holder.lock("r").acquire()
    process = start(processes, "-c", INTERRUPTED, *servers.urls)
    wait_until(lambda: queued(servers) == [1, 1, 1])
    waiting = begin_in_queue(servers, begin, waiter, 2)
    process.send_signal(signal.SIGINT)
    # The waiter leaves the queue although its process is still running.
    wait_until(lambda: queued(servers) == [1, 1, 1])
    assert process.poll() is None
    assert lease.release()
    assert is_served(waiting)
    assert process.communicate("\n", TIMEOUT)[0] == "interrupted\n"
    wait_until(lambda: not keys(servers))


def test_closing_a_client_ends_its_waiters(
    servers: Servers, connect: Connect, begin: Begin
) -> None:
    holder, waiter = connect(servers.urls, **NO_RETRIES), connect(servers.urls, **NO_RETRIES)
    other = connect(servers.urls, **NO_RETRIES)
    lease = holder.lock("r").acquire()
    waiting = [begin(waiter.lock("r")) for _ in range(50)]
    wait_until(lambda: queued(servers) == [1, 1, 1])
    last = begin_in_queue(servers, begin, other, 2)
    waiter.close()
    for closed in waiting:
        with pytest.raises(quorlock.ClosedError):
            closed.result(TIMEOUT)
    wait_until(lambda: queued(servers) == [1, 1, 1])
    wait_until(lambda: listening(servers) == [1, 1, 1])
    assert lease.release()
    assert is_served(last)
    wait_until(lambda: not keys(servers))


@in_loops
def test_all_waiters_are_served_while_others_are_cancelled(
    servers: Servers, connect: Connect, begin: Begin
) -> None:
    # If a loaded machine loses a notification, the waiter retries after 5 s. If all were lost, the
    # test would time out.
    options = NO_RETRIES | {"retry_delay": (5, 5)}
    clients = [connect(servers.urls, **options) for _ in range(4)]
    for _ in range(20):
        waiting = [begin(client.lock("r")) for client in clients * 4]
        to_cancel = random.sample(waiting, 6)
        served = 0
        deadline = time.monotonic() + TIMEOUT
        while waiting:
            assert time.monotonic() < deadline, f"{len(waiting)} were not served"
            for one in [one for one in waiting if one.done()]:
                waiting.remove(one)
                served += is_served_if_not_cancelled(one)
            if to_cancel:
                to_cancel.pop().cancel()
            time.sleep(0.0005)
        assert served >= 10
        wait_until(lambda: not keys(servers))


# Processes that are killed, and forks


HOLDER = """
import sys, quorlock
client = quorlock.Client(sys.argv[2:], ttl=float(sys.argv[1]), wait=600, retry_delay=(600, 600))
with client.lock("r"):
    sys.stdin.readline()
"""


def start(processes: list[subprocess.Popen[str]], *arguments: object) -> subprocess.Popen[str]:
    """Starts a Python process, which is killed at the end of the test."""
    processes.append(
        subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    return processes[-1]


def test_a_waiter_gets_the_lock_when_the_ttl_of_a_killed_holder_ends(
    servers: Servers, connect: Connect, begin: Begin, processes: list[subprocess.Popen[str]]
) -> None:
    # With these delays, the waiter retries when the key expires on the nodes, and rarely otherwise.
    waiter = connect(servers.urls, ttl=LONG, wait=LONG, retry_delay=(0.1, 3600))
    process = start(processes, "-c", HOLDER, 3, *servers.urls)
    wait_until(lambda: all(server.command("EXISTS", "r") for server in servers))
    waiting = begin_in_queue(servers, begin, waiter, 1)
    process.kill()
    assert is_served(waiting)
    wait_until(lambda: not keys(servers))


def test_a_killed_waiter_is_skipped(
    servers: Servers, connect: Connect, begin: Begin, processes: list[subprocess.Popen[str]]
) -> None:
    holder, waiter = connect(servers.urls, **NO_RETRIES), connect(servers.urls, **NO_RETRIES)
    lease = holder.lock("r").acquire()
    process = start(processes, "-c", HOLDER, LONG, *servers.urls)
    wait_until(lambda: queued(servers) == [1, 1, 1])
    waiting = begin_in_queue(servers, begin, waiter, 2)
    process.kill()
    # Wait until the nodes have noticed the closed subscriptions of the killed process.
    wait_until(lambda: listening(servers) == [1, 1, 1])
    assert lease.release()
    assert is_served(waiting)
    wait_until(lambda: not keys(servers))


@in_threads
def test_a_forked_child_has_its_own_queue_entry(
    servers: Servers, connect: Connect, processes: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    order = tmp_path / "order"
    order.touch()
    lease = connect(servers.urls, **NO_RETRIES).lock("r").acquire()
    process = start(processes, PROGRAMS / "forked.py", order, *servers.urls)
    assert process.stdin
    wait_until(lambda: queued(servers) == [1, 1, 1])
    process.stdin.write("fork\n")
    process.stdin.flush()
    wait_until(lambda: queued(servers) == [2, 2, 2])
    channels = {str(member).partition("#")[0] for member in members(servers[0])}
    assert len(channels) == 2
    for server in servers:
        assert set(map(str, server.command("PUBSUB", "CHANNELS"))) == channels  # type: ignore[arg-type]
    assert lease.release()
    wait_until(lambda: order.read_text() == "parent\nchild\n")
    assert process.wait(TIMEOUT) == 0
    wait_until(lambda: not keys(servers))


# Other libraries, missing permissions and damaged queues


def test_a_waiter_gets_the_lock_when_a_foreign_holder_releases_it(
    servers: Servers, connect: Connect, begin: Begin
) -> None:
    waiter = connect(servers.urls, **RETRIES)
    for server in servers:
        assert server.command("SET", "r", "foreign", "NX", "PX", 600_000) == "OK"
    waiting = begin_in_queue(servers, begin, waiter, 1)
    for server in servers:
        assert server.command("DEL", "r") == 1
    assert is_served(waiting)
    wait_until(lambda: not keys(servers))


@pytest.mark.parametrize(
    "rights", ["resetchannels", "-subscribe", "-publish", "-zadd", "-zrange", "-@sortedset"]
)
@in_loops
def test_waiters_without_permissions_retry(
    servers: Servers, connect: Connect, begin: Begin, rights: str
) -> None:
    urls = [deny(server, rights) for server in servers]
    holder, waiter = connect(urls, **RETRIES), connect(urls, **RETRIES)
    lease = holder.lock("r").acquire()
    waiting = [begin(waiter.lock("r")) for _ in range(3)]
    # Wait until at least two rounds were refused.
    wait_until(lambda: refusals(waiter) > 2 * len(servers))
    assert not any(one.done() for one in waiting)
    assert lease.release()
    for one in waiting:
        assert is_served(one)
    # Without permission for ZREM, entries stay until the queue expires.
    left = set() if rights != "-@sortedset" else {"{r}:queue"}
    wait_until(lambda: set(keys(servers)) <= left)


def delete_queue(node: Server) -> None:
    node.command("DEL", "{r}:queue")


def add_invalid_members(node: Server) -> None:
    """Adds members that belong to no waiter, before all other members."""
    [waiter] = members(node)
    live, _, _ = str(waiter).partition("#")
    for score, name in enumerate(["nonsense", "nobody#1", "#", "#1", "", f"{live}#999999"]):
        node.command("ZADD", "{r}:queue", score, name)


def add_notified_members(node: Server) -> None:
    """Adds two members without a waiter: one marked as notified long ago, the other as just now."""
    node.command("ZADD", "{r}:queue", -1, "nobody#1")
    node.command("ZADD", "{r}:queue", -now(node), "nobody#2")


@pytest.mark.parametrize("damage", [delete_queue, add_invalid_members, add_notified_members])
def test_waiters_get_the_lock_despite_damaged_queues(
    servers: Servers, connect: Connect, begin: Begin, damage: Callable[[Server], None]
) -> None:
    holder, waiter = connect(servers.urls, **RETRIES), connect(servers.urls, **RETRIES)
    lease = holder.lock("r").acquire()
    waiting = [begin(waiter.lock("r")) for _ in range(3)]
    wait_until(lambda: queued(servers) == [1, 1, 1])
    for server in servers:
        damage(server)
    assert lease.release()
    for one in waiting:
        assert is_served(one)
    wait_until(lambda: not keys(servers))


@in_loops
def test_a_foreign_key_in_place_of_a_queue_is_not_changed(
    servers: Servers, connect: Connect, begin: Begin
) -> None:
    holder, waiter = connect(servers.urls, **RETRIES), connect(servers.urls, **RETRIES)
    lease = holder.lock("r").acquire()
    waiting = [begin(waiter.lock("r")) for _ in range(3)]
    wait_until(lambda: queued(servers) == [1, 1, 1])
    for server in servers:
        server.command("SET", "{r}:queue", "foreign")
    assert lease.release()
    for one in waiting:
        assert is_served(one)
    for server in servers:
        assert server.command("GET", "{r}:queue") == "foreign"
        assert server.command("TTL", "{r}:queue") == -1


@in_threads
def test_a_notification_from_the_future_does_not_block_the_lock(
    servers: Servers, connect: Connect
) -> None:
    """Such an entry is left if the clocks of the nodes are set back after the notification."""
    for server in servers:
        server.command("ZADD", "{r}:queue", -(now(server) + 3_600_000_000), "nobody#1")
    connect(servers.urls, ttl=LONG).lock("r", wait=5).acquire()


# Cleanup


@in_loops
def test_no_key_and_no_subscription_is_left_after_waiting(
    servers: Servers, connect: Connect, begin: Begin
) -> None:
    clients = [connect(servers.urls, **NO_RETRIES) for _ in range(3)]
    for _ in range(2):
        lease = clients[0].lock("r").acquire()
        waiting = [begin(client.lock("r")) for client in clients for _ in range(5)]
        wait_until(lambda: queued(servers) == [3, 3, 3])
        assert listening(servers) == [3, 3, 3]
        with ThreadPoolExecutor(len(waiting)) as pool:
            served = pool.map(is_served, waiting)
            assert lease.release()
            assert all(served)
        wait_until(lambda: not keys(servers))
        # The clients unsubscribe although they are still open.
        wait_until(lambda: listening(servers) == [0, 0, 0])


@in_loops
def test_a_closed_client_has_no_connections(
    servers: Servers, connect: Connect, begin: Begin
) -> None:
    before = connections(servers)
    holder, waiter = connect(servers.urls, **NO_RETRIES), connect(servers.urls, **NO_RETRIES)
    lease = holder.lock("r").acquire()
    waiting = begin(waiter.lock("r"))
    wait_until(lambda: listening(servers) == [1, 1, 1])
    assert lease.release()
    assert is_served(waiting)
    waiter.close()
    holder.close()
    wait_until(lambda: connections(servers) == before)
