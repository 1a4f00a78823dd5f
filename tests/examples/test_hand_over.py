"""examples/hand-over: a request detaches its lease, and a job of a queue adopts it."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable

import pytest
from examples.gateway import Gateway
from examples.orders import LOCK, Answer, post, refuses
from examples.programs import Program
from nodes import is_everywhere, keys
from servers import Servers
from waiting import wait_until

Start = Callable[..., Program]
HELD = [LOCK] * 3


@pytest.fixture
def start_fastapi(start_python: Start, queue: Servers) -> Callable[[], int]:
    def start_fastapi() -> int:
        program = start_python("hand-over", "-m", "uvicorn", "app:app", "--port", "0")
        return int(program.wait_for(r"running on http://127\.0\.0\.1:(\d+)")[1])

    return start_fastapi


@pytest.fixture
def start_express(start_node: Start, queue: Servers) -> Callable[[str], int]:
    def start_express(jobs: str) -> int:
        program = start_node("hand-over", "app.js", JOBS=jobs)
        return int(program.wait_for(r"listening on port (\d+)")[1])

    return start_express


@pytest.fixture
def start_celery(start_python: Start, queue: Servers) -> Callable[[], Program]:
    def start_celery() -> Program:
        options = "--loglevel INFO --concurrency 2 --without-gossip --without-mingle"
        command = f"-m celery --app tasks worker {options}"
        worker = start_python("hand-over", *command.split(), "--hostname", os.urandom(4).hex())
        worker.wait_for(r"ready\.")
        return worker

    return start_celery


@pytest.fixture
def start_bullmq(start_node: Start, queue: Servers) -> Callable[[], Program]:
    def start_bullmq() -> Program:
        worker = start_node("hand-over", "worker.js")
        worker.wait_for("ready")
        return worker

    return start_bullmq


@pytest.fixture(params=["FastAPI to Celery", "Express to BullMQ", "Express to Celery"])
def recipe(request: pytest.FixtureRequest) -> tuple[Callable[[], int], Callable[[], Program]]:
    """Functions that start the server, and return its port, and that start a worker."""
    server, _, worker = request.param.partition(" to ")
    if server == "FastAPI":
        start_server = request.getfixturevalue("start_fastapi")
    else:
        express = request.getfixturevalue("start_express")
        start_server = lambda: express(f"./{worker.lower()}.js")  # noqa: E731
    return start_server, request.getfixturevalue(f"start_{worker.lower()}")


Recipe = tuple[Callable[[], int], Callable[[], Program]]


def ship(port: int) -> int:
    return post(port, "/orders/1/ship").status


def finished(worker: Program) -> int:
    return len(re.findall(r"succeeded in | completed$", worker.text, re.MULTILINE))


def test_the_lock_is_held_from_the_request_to_the_end_of_the_job(
    recipe: Recipe, gateway: Gateway, servers: Servers
) -> None:
    start_server, start_worker = recipe
    port = start_server()
    assert ship(port) == 202
    wait_until(lambda: keys(servers) == HELD)
    token = servers[0].command("GET", LOCK)
    # The job waits in the queue.
    assert post(port, "/orders/1/ship") == Answer(409, {"error": "TIMEOUT"}, "1")
    gateway.hold()
    worker = start_worker()
    wait_until(lambda: gateway.states == ["in progress"])
    wait_until(lambda: servers[0].command("GET", LOCK) != token)
    assert [keys(servers), ship(port)] == [HELD, 409]
    fence = str(gateway.calls[0].body["fence"])
    wait_until(lambda: is_everywhere(servers, "{orders:1}:fence", fence))
    gateway.release()
    wait_until(lambda: finished(worker) == 1)
    wait_until(lambda: not keys(servers))
    # A second job finds that the work is done.
    assert ship(port) == 202
    wait_until(lambda: finished(worker) == 2)
    assert gateway.states == ["answered"]
    assert worker.terminate() == 0, worker.text
    assert "quorlock-handover" not in worker.text
    assert not keys(servers)


def test_a_job_that_cannot_be_queued_leaves_the_lock_free(
    recipe: Recipe, queue: Servers, servers: Servers
) -> None:
    port = recipe[0]()
    queue[0].kill()
    wait_until(lambda: refuses(queue[0].port))
    assert ship(port) == 503
    wait_until(lambda: not keys(servers))


def test_a_job_of_a_killed_worker_acquires_the_lock_again(
    start_fastapi: Callable[[], int],
    start_celery: Callable[[], Program],
    gateway: Gateway,
    servers: Servers,
) -> None:
    worker = start_celery()
    gateway.hold()
    assert ship(start_fastapi()) == 202
    wait_until(lambda: gateway.states == ["in progress"])
    for child in worker.children():
        os.kill(child, signal.SIGKILL)
    wait_until(lambda: gateway.states[0] == "aborted")
    gateway.release()
    # The lease that the killed process has adopted must expire first.
    wait_until(lambda: "succeeded" in worker.text)
    first, second = gateway.calls
    assert first.key == second.key == "order-1"
    assert second.body["fence"] > first.body["fence"]
    assert not gateway.overlaps
    assert worker.terminate() == 0
    assert not keys(servers)
