"""examples/fastapi, served by uvicorn."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from docs.blocks import blocks, copies
from examples.gateway import Gateway
from examples.installing import EXAMPLES, PYTHON, ROOT
from examples.orders import check_contention, check_loss, check_outage, check_shutdown, pay
from examples.programs import Program
from servers import Servers, reserve_port

Hosts = Callable[[], tuple[Program, int]]


@pytest.fixture
def start_host(start_python: Callable[..., Program], environment: dict[str, str]) -> Hosts:
    """`start_host()` starts a server as one host, and returns the program and its port."""

    def start_host() -> tuple[Program, int]:
        program = start_python("fastapi", "-m", "uvicorn", "app:app", "--port", "0")
        port = int(program.wait_for(r"running on http://127\.0\.0\.1:(\d+)")[1])
        with sqlite3.connect(environment["DATABASE"]) as database:
            database.execute("INSERT OR IGNORE INTO orders (id) VALUES (1)")
        database.close()
        return program, port

    return start_host


def test_two_hosts_pay_an_order_once(start_host: Hosts, gateway: Gateway, servers: Servers) -> None:
    (one, first), (other, second) = start_host(), start_host()
    check_contention(gateway, servers, first, second)
    # After closing the server, Uvicorn may end its own process with the signal it received.
    ends = {0, -signal.SIGTERM}
    check_shutdown(servers, one.terminate, ends)
    check_shutdown(servers, other.terminate, ends)


def test_an_outage_is_answered_with_503(
    start_host: Hosts, gateway: Gateway, servers: Servers
) -> None:
    _, port = start_host()
    check_outage(gateway, servers, port)


def test_a_lost_lease_cancels_the_endpoint(
    start_host: Hosts, gateway: Gateway, servers: Servers, tmp_path: Path
) -> None:
    _, port = start_host()
    check_loss(gateway, servers, port)
    database = sqlite3.connect(tmp_path / "database")
    assert database.execute("SELECT paid FROM orders").fetchall() == [(0,)]
    database.close()


def test_an_old_holder_cannot_write(start_python: Callable[..., Program]) -> None:
    write = "import store; store.create()\n"
    write += "with store.transaction() as database:\n"
    write += "    database.execute('INSERT INTO orders (id) VALUES (1)')\n"
    write += "store.mark_paid(1, fence=8); store.mark_paid(1, fence=8)\n"
    assert start_python("fastapi", "-c", write).end() == 0
    late = start_python("fastapi", "-c", "import store; store.mark_paid(1, fence=7)")
    late.wait_for("StaleFenceError: order 1 was written with a fence larger than 7")
    assert late.end() == 1


def test_the_page_can_be_followed(
    start: Callable[..., Program], frameworks: None, tmp_path: Path
) -> None:
    page = EXAMPLES.parent / "docs" / "recipes" / "fastapi.md"
    reserved = {printed: reserve_port() for printed in ("8000", "8900")}

    def here(text: str) -> str:
        for printed, (port, _) in reserved.items():
            text = text.replace(printed, str(port))
        return text

    for copy in copies(page):
        (tmp_path / copy.file.name).write_text(here(copy.code))
    (block,) = (each for each in blocks(page) if each.language == "sh")
    install, export, *commands = here(block.code).strip().splitlines()
    assert install.startswith("pip install ")
    # The nodes are those of the test.
    export = export.replace("QUORLOCK_NODES=redis://127.0.0.1:6379 ", "")
    program = start(
        ["bash", "-euc", "\n".join([export, *commands, "kill $(jobs -p)", "wait"])],
        str(tmp_path),
        PATH=f"{Path(PYTHON.program[0]).parent}:{os.environ['PATH']}",
        PYTHONPATH=str(ROOT / "bindings-python" / "python"),
    )
    program.wait_for(r'{"charged":true}')
    program.end()
    assert program.text.count('{"charged":false}') == 1
    assert program.text.count("/charges order-1 ") == 1


def test_an_unknown_order_is_answered_with_404(start_host: Hosts) -> None:
    _, port = start_host()
    assert pay(port, order=2).status == 404
