"""examples/celery: prefork workers, with a Redis or Valkey server as the broker."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable

import pytest
from examples.gateway import Gateway
from examples.programs import Program
from nodes import keys
from servers import Servers
from waiting import wait_until

Start = Callable[..., Program]


@pytest.fixture
def broker(start_servers: Callable[..., Servers], environment: dict[str, str]) -> None:
    environment["BROKER_URL"] = start_servers(1).urls[0] + "/0"


@pytest.fixture
def start_worker(start_python: Start, broker: None) -> Callable[[], Program]:
    """`start_worker()` starts a worker with two processes. The worker represents one host."""

    def start_worker() -> Program:
        options = "--loglevel INFO --concurrency 2 --without-gossip --without-mingle"
        command = f"-m celery --app tasks worker {options}"
        worker = start_python("celery", *command.split(), "--hostname", os.urandom(4).hex())
        worker.wait_for(r"ready\.")
        return worker

    return start_worker


@pytest.fixture
def send(start_python: Start, broker: None) -> Callable[[int], None]:
    """`send(times)` enqueues the task for invoice 1 this many times."""

    def send(times: int) -> None:
        program = f"import tasks\nfor _ in range({times}): tasks.send_invoice.delay(1)"
        assert start_python("celery", "-c", program).end() == 0

    return send


Worker = Callable[[], Program]
Send = Callable[[int], None]


def results(*workers: Program) -> list[str]:
    """Returns the results of the tasks that have finished, sorted."""
    text = "".join(worker.text for worker in workers)
    return sorted(re.findall(r"succeeded in .*: '(.*)'", text))


def test_an_invoice_is_sent_once(
    start_worker: Worker, send: Send, gateway: Gateway, servers: Servers
) -> None:
    workers = start_worker(), start_worker()
    gateway.hold()
    send(6)
    wait_until(lambda: gateway.states == ["in progress"])
    # The other tasks are retried later.
    for worker in workers:
        worker.wait_for(r"retry: Retry in .*LockTimeoutError")
    gateway.release()
    wait_until(lambda: len(results(*workers)) == 6)
    assert results(*workers) == ["sent"] + 5 * ["sent before"]
    assert gateway.states == ["answered"]
    for worker in workers:
        assert worker.terminate() == 0
    assert not keys(servers)


def test_a_task_of_a_killed_process_is_run_again(
    start_worker: Worker, send: Send, gateway: Gateway, servers: Servers
) -> None:
    worker = start_worker()
    gateway.hold()
    send(1)
    wait_until(lambda: gateway.states == ["in progress"])
    for child in worker.children():
        os.kill(child, signal.SIGKILL)
    wait_until(lambda: gateway.states[0] == "aborted")
    gateway.release()
    # The lock of the killed process must expire first.
    wait_until(lambda: results(worker) == ["sent"])
    assert [call.key for call in gateway.calls] == 2 * ["invoice-1"]
    assert not gateway.overlaps
    assert worker.terminate() == 0
    assert not keys(servers)


def test_a_task_is_retried_until_an_outage_ends(
    start_worker: Worker, send: Send, gateway: Gateway, servers: Servers
) -> None:
    worker = start_worker()
    servers[0].freeze()
    servers[1].freeze()
    send(1)
    worker.wait_for(r"retry: Retry in .*QuorumError")
    assert not gateway.calls
    servers[0].thaw()
    servers[1].thaw()
    wait_until(lambda: results(worker) == ["sent"])
    assert gateway.states == ["answered"]
