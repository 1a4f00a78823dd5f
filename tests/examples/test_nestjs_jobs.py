"""examples/nestjs, its jobs: a queue, and a schedule on several hosts."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from examples.gateway import Gateway
from examples.programs import Program
from nodes import keys
from servers import Servers
from waiting import wait_until

Host = Callable[..., Program]
EVERY_SECOND = "* * * * * *"


@pytest.fixture
def start_host(start_node: Callable[..., Program], nestjs: str, queue: Servers) -> Host:
    def start_host(**more: str) -> Program:
        host = start_node("nestjs", "dist/worker.js", **more)
        host.wait_for("ready")
        return host

    return start_host


@pytest.fixture
def add(start_node: Callable[..., Program], queue: Servers) -> Callable[[int], None]:
    """`add(order)` adds a job for the order."""

    def add(order: int) -> None:
        program = f"""
            import {{ Queue }} from 'bullmq'
            const queue = new Queue('orders', {{ connection: {{ url: process.env.QUEUE_URL }} }})
            await queue.add('pay', {{ order: {order} }}, {{ attempts: 100, backoff: 500 }})
            await queue.close()
        """
        done = start_node("nestjs", "--input-type=module", "--eval", program)
        assert done.end() == 0, done.text

    return add


def test_jobs_of_an_order_run_one_after_the_other(
    start_host: Host, add: Callable[[int], None], gateway: Gateway, queue: Servers
) -> None:
    hosts = [start_host(), start_host()]
    gateway.hold()
    for order in (1, 1, 2):
        add(order)
        if order == 1:
            wait_until(lambda: gateway.in_progress("order-1") == 1)
    # The second job for order 1 waits for its lock, and then for its next attempt.
    wait_until(lambda: queue[0].command("ZCARD", "bull:orders:delayed") == 1)
    wait_until(lambda: gateway.in_progress("order-2") == 1)
    gateway.release()
    wait_until(lambda: gateway.states == ["answered"] * 3)
    assert not gateway.overlaps
    for host in hosts:
        host.terminate()


def test_one_host_creates_the_report(start_host: Host, gateway: Gateway, servers: Servers) -> None:
    hosts = [start_host(SCHEDULE=EVERY_SECOND) for _ in range(2)]
    # The lock stays held after the work, so both hosts find it held.
    for host in hosts:
        host.wait_for("another host creates the report")
    for host in hosts:
        assert host.terminate() == -signal.SIGTERM
        assert "rror" not in host.text
    assert keys(servers) == ["jobs:report"] * 3
    assert gateway.states == ["answered"]


def test_an_outage_is_logged(start_host: Host, servers: Servers) -> None:
    for server in servers:
        server.freeze()
    host = start_host(SCHEDULE=EVERY_SECOND)
    host.wait_for("too few nodes")
    for server in servers:
        server.thaw()
    host.wait_for("report of .* created")
