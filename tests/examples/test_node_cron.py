"""examples/node-cron: one of several hosts runs a job that is due on all of them."""

from __future__ import annotations

import signal
from collections.abc import Callable

from examples.gateway import Gateway
from examples.programs import Program
from nodes import keys
from servers import Servers
from waiting import wait_until

Start = Callable[..., Program]
EVERY_SECOND = "* * * * * *"


def test_one_host_creates_the_report(start_node: Start, gateway: Gateway, servers: Servers) -> None:
    hosts = [start_node("node-cron", "jobs.js", SCHEDULE=EVERY_SECOND) for _ in range(2)]
    # The lock stays held after the work, so both hosts find it held.
    for host in hosts:
        host.wait_for("another host creates the report")
        assert host.terminate() == 0, host.text
    assert gateway.states == ["answered"]
    assert keys(servers) == ["jobs:report"] * 3


def test_a_running_job_is_finished_first(start_node: Start, gateway: Gateway) -> None:
    gateway.hold()
    host = start_node("node-cron", "jobs.js", SCHEDULE=EVERY_SECOND)
    wait_until(lambda: gateway.states == ["in progress"])
    host.send(signal.SIGTERM)
    gateway.release()
    assert host.end() == 0
    host.wait_for("report of .* created")
    assert gateway.states == ["answered"]


def test_an_outage_does_not_end_the_schedule(start_node: Start, servers: Servers) -> None:
    servers[0].freeze()
    servers[1].freeze()
    host = start_node("node-cron", "jobs.js", SCHEDULE=EVERY_SECOND)
    host.wait_for("QuorumError")
    servers[0].thaw()
    servers[1].thaw()
    host.wait_for("report of .* created")
