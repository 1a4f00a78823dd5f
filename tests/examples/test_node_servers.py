"""examples/express, examples/fastify and examples/nestjs: the same service three times."""

from __future__ import annotations

import http.client
from collections.abc import Callable

import pytest
from examples.gateway import Gateway
from examples.orders import (
    LOCK,
    TERMINATE,
    check_contention,
    check_loss,
    check_outage,
    check_shutdown,
    pay,
    paying,
    refuses,
)
from examples.programs import Program
from nodes import keys
from servers import Servers
from waiting import TIMEOUT, wait_until

Hosts = Callable[[], tuple[Program, int]]


@pytest.fixture(params=["express", "fastify", "nestjs"])
def start_host(request: pytest.FixtureRequest, start_node: Callable[..., Program]) -> Hosts:
    """Starts a server, as on a host of its own, and returns it and its port."""
    program = request.getfixturevalue("nestjs") if request.param == "nestjs" else "app.js"

    def start_host() -> tuple[Program, int]:
        host = start_node(request.param, program)
        return host, int(host.wait_for(r"listening on port (\d+)")[1])

    return start_host


@pytest.fixture
def end(request: pytest.FixtureRequest) -> int:
    """How a server ends; NestJS passes the signal on to itself when all is closed."""
    return -TERMINATE if "nestjs" in request.node.name else 0


def test_two_hosts(start_host: Hosts, gateway: Gateway, servers: Servers, end: int) -> None:
    (one, first), (other, second) = start_host(), start_host()
    # Each has its own `paid`, which stands for a database; the repetition goes to the second one.
    check_contention(gateway, servers, first, second, repeat=first)
    check_shutdown(servers, one.terminate, {end})
    check_shutdown(servers, other.terminate, {end})


def test_no_quorum(start_host: Hosts, gateway: Gateway, servers: Servers) -> None:
    _, port = start_host()
    check_outage(gateway, servers, port)


def test_a_lost_lease_ends_the_call(start_host: Hosts, gateway: Gateway, servers: Servers) -> None:
    _, port = start_host()
    check_loss(gateway, servers, port)
    gateway.release()
    for server in servers:
        server.command("DEL", LOCK)
    assert pay(port).body == {"charged": True}


def test_who_hangs_up_does_not_wait(
    start_host: Hosts, gateway: Gateway, servers: Servers, end: int
) -> None:
    host, port = start_host()
    gateway.hold()
    with paying(port) as first:
        wait_until(lambda: gateway.states == ["under way"])
        waiter = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
        waiter.request("POST", "/orders/1/pay")
        wait_until(lambda: "{orders:1}:queue" in keys(servers))
        waiter.close()
        wait_until(lambda: "{orders:1}:queue" not in keys(servers))
        gateway.release()
        assert first.result().status == 200
    assert host.terminate() == end, host.text
    assert "rror" not in host.text
    assert not keys(servers)


def test_requests_under_way_are_answered_at_the_end(
    start_host: Hosts, gateway: Gateway, servers: Servers, end: int
) -> None:
    host, port = start_host()
    gateway.hold()
    with paying(port) as first:
        wait_until(lambda: gateway.states == ["under way"])
        host.send(TERMINATE)
        wait_until(lambda: refuses(port))
        gateway.release()
        assert first.result().status == 200
    assert host.end() == end
    assert not keys(servers)
