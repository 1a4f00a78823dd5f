"""Common checks of the web framework examples, in which each order is paid once.

POST /orders/{order}/pay holds the lock of the order while it calls the gateway.
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
    return post(port, f"/orders/{order}/pay")


def post(port: int, path: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    try:
        connection.request("POST", path)
        response = connection.getresponse()
        text = response.read()
        body = json.loads(text) if text else None
        return Answer(response.status, body, response.getheader("Retry-After"))
    finally:
        connection.close()


@contextmanager
def paying(port: int) -> Iterator[Future[Answer]]:
    """Sends a request in the background, and yields a future of its answer."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(pay, port)


def refuses(port: int) -> bool:
    """Returns whether the port refuses connections."""
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) != 0


def check_contention(
    gateway: Gateway, servers: Servers, one: int, other: int, repeat: int | None = None
) -> None:
    """Sends the same request to two hosts. Checks that one pays and the other answers 409."""
    gateway.hold()
    with paying(one) as first:
        wait_until(lambda: gateway.states == ["in progress"])
        wait_until(lambda: keys(servers).count(LOCK) == len(servers))
        assert pay(other) == Answer(409, {"error": "TIMEOUT"}, "1")
        gateway.release()
        assert first.result().status == 200
        assert first.result().body == {"charged": True}
    # The lock was released before the answer was sent.
    assert pay(repeat or other) == Answer(200, {"charged": False}, None)
    assert gateway.states == ["answered"]
    wait_until(lambda: not keys(servers))


def check_outage(gateway: Gateway, servers: Servers, port: int) -> None:
    """Checks that without a majority of the nodes the answer is 503, and nothing is paid."""
    servers[0].freeze()
    servers[1].freeze()
    assert pay(port) == Answer(503, {"error": "NO_QUORUM"}, "1")
    assert not gateway.calls
    servers[0].thaw()
    wait_until(lambda: pay(port).status == 200)
    assert gateway.states == ["answered"]


def check_loss(gateway: Gateway, servers: Servers, port: int) -> None:
    """Checks that a holder that loses its lease stops its work and answers 503."""
    gateway.hold()
    with paying(port) as first:
        wait_until(lambda: gateway.states == ["in progress"])
        steal(servers, LOCK)
        # The gateway did not answer: its call was aborted when the lease was lost.
        assert first.result() == Answer(503, {"error": "LEASE_LOST"}, "1")
    wait_until(lambda: gateway.states == ["aborted"])
    for server in servers:
        assert server.command("GET", LOCK) == "thief"


def check_shutdown(servers: Servers, terminate: Callable[[], int], statuses: set[int]) -> None:
    """Checks that the server exits with one of the statuses, and leaves no keys."""
    assert terminate() in statuses
    assert not keys(servers)
