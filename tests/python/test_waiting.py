"""Waiting on real servers, in threads, tasks and processes of Python. `waiting.rs` and the
simulation test the order of the waiters, and faults during a wait."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest
import uvloop
from nodes import is_free, keys, listening, queued
from servers import Server, Servers
from waiting import TIMEOUT, wait_until

import quorlock

LONG = 600.0
"""A time, in seconds, longer than any test."""

PROGRAMS = Path(__file__).resolve().parent / "programs"

Connect = Callable[[Servers], quorlock.Client]
Begin = Callable[[quorlock.Lock], "Future[quorlock.Lease]"]


@contextmanager
def threads() -> Iterator[Begin]:
    with ThreadPoolExecutor(100) as pool:
        yield lambda lock: pool.submit(lock.acquire)


@contextmanager
def tasks(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> Iterator[Begin]:
    loop = new_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield lambda lock: asyncio.run_coroutine_threadsafe(lock.acquire_async(), loop)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


FORMS: dict[str, Callable[[], AbstractContextManager[Begin]]] = {
    "threads": threads,
    "asyncio": lambda: tasks(asyncio.new_event_loop),
    "uvloop": lambda: tasks(uvloop.new_event_loop),
}


@pytest.fixture(params=FORMS)
def begin(request: pytest.FixtureRequest) -> Iterator[Begin]:
    """`begin(lock)` starts an acquire in the background and returns a future of its lease."""
    with FORMS[request.param]() as begin:
        yield begin


@pytest.fixture
def connect() -> Iterator[Connect]:
    """`connect(servers)` returns a client, whose waiters get the lock only if they are notified. It
    is closed at the end of the test."""
    with ExitStack() as clients:

        def connect(servers: Servers) -> quorlock.Client:
            client = quorlock.Client(servers.urls, ttl=LONG, wait=LONG, retry_delay=(LONG, LONG))
            return clients.enter_context(client)

        yield connect


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`start(*arguments)` starts a Python process, which is killed at the end of the test."""
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: str | Path) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        process = subprocess.Popen([sys.executable, *arguments], stdin=pipe, stdout=pipe, text=True)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def wait_for_queues(servers: Servers, count: int) -> None:
    """Waits until the queue of each node has `count` members."""
    wait_until(lambda: queued(servers) == [count] * len(servers))


def test_a_release_notifies_the_waiter(servers: Servers, connect: Connect, begin: Begin) -> None:
    holder, waiter = connect(servers), connect(servers)
    for _ in range(3):
        lease = holder.lock("r").acquire()
        waiting = begin(waiter.lock("r"))
        wait_for_queues(servers, 1)
        assert lease.release()
        assert waiting.result(TIMEOUT).release()
        wait_until(lambda: not keys(servers))


def test_a_release_notifies_while_two_of_five_nodes_are_down(
    start_servers: Callable[..., Servers], connect: Connect
) -> None:
    servers = start_servers(5)
    lease = connect(servers).lock("r").acquire()
    with threads() as begin:
        waiting = begin(connect(servers).lock("r"))
        wait_for_queues(servers, 1)
        servers[0].kill()
        servers[1].kill()
        lease.release()
        assert waiting.result(TIMEOUT).release()


def test_a_waiter_returns_to_the_queue_of_a_restarted_node(
    servers: Servers, connect: Connect
) -> None:
    lease = connect(servers).lock("r").acquire()
    with threads() as begin:
        waiting = begin(connect(servers).lock("r"))
        wait_for_queues(servers, 1)
        servers[0].restart()
        wait_until(lambda: listening(servers) == [1, 1, 1])
        wait_for_queues(servers, 1)
        lease.release()
        assert waiting.result(TIMEOUT).release()


def test_closing_a_client_ends_its_waiters(
    servers: Servers, connect: Connect, begin: Begin
) -> None:
    closing, other = connect(servers), connect(servers)
    lease = connect(servers).lock("r").acquire()
    waiting = [begin(closing.lock("r")) for _ in range(50)]
    wait_for_queues(servers, 1)
    last = begin(other.lock("r"))
    wait_for_queues(servers, 2)
    closing.close()
    for closed in waiting:
        with pytest.raises(quorlock.ClosedError):
            closed.result(TIMEOUT)
    wait_for_queues(servers, 1)
    wait_until(lambda: listening(servers) == [1, 1, 1])
    assert lease.release()
    assert last.result(TIMEOUT).release()


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


def test_an_interrupted_waiter_leaves_the_queues(
    servers: Servers, connect: Connect, start: Callable[..., subprocess.Popen[str]]
) -> None:
    with connect(servers).lock("r"):
        process = start("-c", INTERRUPTED, *servers.urls)
        wait_for_queues(servers, 1)
        process.send_signal(signal.SIGINT)
        # The waiter leaves the queues although its process is still running.
        wait_until(lambda: is_free(servers, "{r}:queue"))
        assert process.poll() is None
        assert process.communicate("\n", TIMEOUT)[0] == "interrupted\n"


def test_a_forked_child_has_its_own_queue_entry(
    servers: Servers,
    connect: Connect,
    start: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
) -> None:
    order = tmp_path / "order"
    order.touch()
    lease = connect(servers).lock("r").acquire()
    process = start(PROGRAMS / "forked.py", order, *servers.urls)
    assert process.stdin
    wait_for_queues(servers, 1)
    process.stdin.write("fork\n")
    process.stdin.flush()
    wait_for_queues(servers, 2)
    members = servers[0].command("ZRANGE", "{r}:queue", 0, -1)
    channels = {str(member).partition("#")[0] for member in members}  # type: ignore[union-attr]
    assert len(channels) == 2
    for server in servers:
        assert set(map(str, server.command("PUBSUB", "CHANNELS"))) == channels  # type: ignore[arg-type]
    assert lease.release()
    wait_until(lambda: order.read_text() == "parent\nchild\n")
    assert process.wait(TIMEOUT) == 0
    wait_until(lambda: not keys(servers))


def now(node: Server) -> int:
    """Returns the time of the node's clock, in microseconds."""
    seconds, micros = map(int, node.command("TIME"))  # type: ignore[arg-type]
    return seconds * 1_000_000 + micros


def test_a_notification_from_the_future_does_not_block_the_lock(
    servers: Servers, connect: Connect
) -> None:
    """Such an entry is left if the clocks of the nodes are set back after the notification."""
    for server in servers:
        server.command("ZADD", "{r}:queue", -(now(server) + 3_600_000_000), "nobody#1")
    connect(servers).lock("r", wait=5).acquire().release()
