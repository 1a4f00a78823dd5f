"""What the examples of web frameworks have in common: orders that are paid for once.

POST /orders/{order}/pay holds the order's lock while it calls the gateway.
"""

from __future__ import annotations

import http.client
import json
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from examples.gateway import Gateway
from nodes import keys, steal
from servers import Servers
from waiting import TIMEOUT, wait_until

LOCK = "orders:1"
TERMINATE = signal.SIGTERM


@dataclass
class Answer:
    status: int
    body: Any
    retry_after: str | None


def pay(port: int, order: int = 1) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    try:
        connection.request("POST", f"/orders/{order}/pay")
        response = connection.getresponse()
        text = response.read()
        body = json.loads(text) if text else None
        return Answer(response.status, body, response.getheader("Retry-After"))
    finally:
        connection.close()


@contextmanager
def paying(port: int) -> Iterator[Future[Answer]]:
    """A request under way."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(pay, port)


def refuses(port: int) -> bool:
    """Whether nobody listens there any more."""
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) != 0


def check_contention(
    gateway: Gateway, servers: Servers, one: int, other: int, repeat: int | None = None
) -> None:
    """Two hosts get the same request: one does it, the other is told to come back."""
    gateway.hold()
    with paying(one) as first:
        wait_until(lambda: gateway.states == ["under way"])
        assert keys(servers).count(LOCK) == len(servers)
        assert pay(other) == Answer(409, {"error": "TIMEOUT"}, "1")
        gateway.release()
        assert first.result().status == 200
        assert first.result().body == {"charged": True}
    # The lock was released before the answer came.
    assert pay(repeat or other) == Answer(200, {"charged": False}, None)
    assert gateway.states == ["answered"]
    wait_until(lambda: not keys(servers))


def check_outage(gateway: Gateway, servers: Servers, port: int) -> None:
    """Without a majority of the nodes nobody holds anything, and that is another answer."""
    servers[0].freeze()
    servers[1].freeze()
    assert pay(port) == Answer(503, {"error": "NO_QUORUM"}, "1")
    assert not gateway.calls
    servers[0].thaw()
    wait_until(lambda: pay(port).status == 200)
    assert gateway.states == ["answered"]


def check_loss(gateway: Gateway, servers: Servers, port: int) -> None:
    """A holder that loses its lease stops working, and says that it did not succeed."""
    gateway.hold()
    with paying(port) as first:
        wait_until(lambda: gateway.states == ["under way"])
        steal(servers, LOCK)
        # Nobody answered: the call was given up when the lease was lost.
        assert first.result() == Answer(503, {"error": "LEASE_LOST"}, "1")
    wait_until(lambda: gateway.states == ["aborted"])
    for server in servers:
        assert server.command("GET", LOCK) == "thief"


def check_shutdown(servers: Servers, terminate: Callable[[], int], statuses: set[int]) -> None:
    """It ends when it is asked to, and leaves nothing behind."""
    assert terminate() in statuses
    assert not keys(servers)
