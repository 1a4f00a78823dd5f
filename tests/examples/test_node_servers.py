"""examples/express, examples/fastify and examples/nestjs: the same service in each framework."""

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
    """`start_host()` starts a server as one host, and returns the program and its port."""
    program = request.getfixturevalue("nestjs") if request.param == "nestjs" else "app.js"

    def start_host() -> tuple[Program, int]:
        host = start_node(request.param, program)
        return host, int(host.wait_for(r"listening on port (\d+)")[1])

    return start_host


@pytest.fixture
def end(request: pytest.FixtureRequest) -> int:
    """The exit status of a server after SIGTERM. NestJS ends its own process with SIGTERM too."""
    return -TERMINATE if "nestjs" in request.node.name else 0


def test_two_hosts_pay_an_order_once(
    start_host: Hosts, gateway: Gateway, servers: Servers, end: int
) -> None:
    (one, first), (other, second) = start_host(), start_host()
    # The hosts have no common database: only the first one knows that the order has been paid.
    check_contention(gateway, servers, first, second, repeat=first)
    check_shutdown(servers, one.terminate, {end})
    check_shutdown(servers, other.terminate, {end})


def test_an_outage_is_answered_with_503(
    start_host: Hosts, gateway: Gateway, servers: Servers
) -> None:
    _, port = start_host()
    check_outage(gateway, servers, port)


def test_a_lost_lease_ends_the_call(start_host: Hosts, gateway: Gateway, servers: Servers) -> None:
    _, port = start_host()
    check_loss(gateway, servers, port)
    gateway.release()
    for server in servers:
        server.command("DEL", LOCK)
    assert pay(port).body == {"charged": True}


def test_a_client_that_disconnects_stops_waiting(
    start_host: Hosts, gateway: Gateway, servers: Servers, end: int
) -> None:
    host, port = start_host()
    gateway.hold()
    with paying(port) as first:
        wait_until(lambda: gateway.states == ["in progress"])
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


def test_requests_in_progress_are_answered_before_the_exit(
    start_host: Hosts, gateway: Gateway, servers: Servers, end: int
) -> None:
    host, port = start_host()
    gateway.hold()
    with paying(port) as first:
        wait_until(lambda: gateway.states == ["in progress"])
        host.send(TERMINATE)
        wait_until(lambda: refuses(port))
        gateway.release()
        assert first.result().status == 200
    assert host.end() == end
    assert not keys(servers)
