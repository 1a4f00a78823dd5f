"""examples/django: a view in gunicorn's prefork workers, and a command that cron starts."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from examples.gateway import Gateway
from examples.orders import Answer, check_contention, check_outage, check_shutdown, paying
from examples.programs import Program
from nodes import keys
from servers import Servers
from waiting import wait_until

Start = Callable[..., Program]
REMINDERS = "send_reminders"


@pytest.fixture
def database(start_python: Start, tmp_path: Path) -> Path:
    """A database with three unpaid orders."""
    program = start_python("django", "manage.py", "migrate", "--run-syncdb", "--verbosity", "0")
    assert program.end() == 0, program.text
    path = tmp_path / "database"
    with closing(sqlite3.connect(path)) as connection, connection:
        for number in (1, 2, 3):
            connection.execute(
                "INSERT INTO shop_order (id, paid, fence) VALUES (?, 0, 0)", [number]
            )
    return path


def select(database: Path, columns: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(f"SELECT {columns} FROM shop_order ORDER BY id").fetchall()


@pytest.fixture
def start_host(start_python: Start, database: Path) -> Callable[[], tuple[Program, int]]:
    """`start_host()` starts gunicorn with two workers, and returns the program and its port."""

    def start_host() -> tuple[Program, int]:
        options = ["--preload", "--workers", "2", "--bind", "127.0.0.1:0", "shop.wsgi"]
        host = start_python("django", "-m", "gunicorn", *options)
        return host, int(host.wait_for(r"Listening at: http://127\.0\.0\.1:(\d+)")[1])

    return start_host


Hosts = Callable[[], tuple[Program, int]]


def test_two_hosts_pay_an_order_once(start_host: Hosts, gateway: Gateway, servers: Servers) -> None:
    (one, first), (other, second) = start_host(), start_host()
    check_contention(gateway, servers, first, second)
    check_shutdown(servers, one.terminate, {0})
    check_shutdown(servers, other.terminate, {0})


def test_an_outage_is_answered_with_503(
    start_host: Hosts, gateway: Gateway, servers: Servers
) -> None:
    _, port = start_host()
    check_outage(gateway, servers, port)


def test_a_holder_that_was_paused_does_not_write(
    start_host: Hosts, gateway: Gateway, servers: Servers, database: Path
) -> None:
    host, port = start_host()
    gateway.hold()
    with paying(port) as first:
        wait_until(lambda: gateway.states == ["in progress"])
        host.freeze_all()
        wait_until(lambda: not keys(servers))
        gateway.release()
        wait_until(lambda: gateway.states == ["answered"])
        host.thaw_all()
        assert first.result() == Answer(503, {"error": "LEASE_LOST"}, "1")
    assert select(database, "paid, fence")[0] == (0, 0)


def test_an_old_fence_is_refused(start_python: Start, database: Path) -> None:
    write = "from shop.models import Order; order = Order.objects.get(pk=1);"
    write += "order.mark_paid(8); order.mark_paid(8); order.mark_paid(7)"
    late = start_python("django", "manage.py", "shell", "--command", write)
    late.wait_for("StaleFenceError: order 1 was written with a fence larger than 7")
    assert select(database, "paid, fence")[0] == (1, 8)


def test_the_command_runs_on_one_host(
    start_python: Start, database: Path, gateway: Gateway, servers: Servers
) -> None:
    gateway.hold()
    first = start_python("django", "manage.py", REMINDERS)
    wait_until(lambda: gateway.states == ["in progress"])
    second = start_python("django", "manage.py", REMINDERS)
    second.wait_for("another host is at it")
    assert second.end() == 0
    gateway.release()
    first.wait_for("3 reminded")
    assert first.end() == 0
    # A host that starts late finds the lock free, but no reminder is left to send.
    late = start_python("django", "manage.py", REMINDERS)
    late.wait_for("0 reminded")
    assert len(gateway.calls) == 3
    assert late.end() == 0
    assert not keys(servers)


def test_the_command_continues_where_a_killed_one_stopped(
    start_python: Start, database: Path, gateway: Gateway, servers: Servers
) -> None:
    gateway.hold()
    first = start_python("django", "manage.py", REMINDERS)
    wait_until(lambda: gateway.states == ["in progress"])
    first.kill()
    gateway.release()
    wait_until(lambda: not keys(servers))
    second = start_python("django", "manage.py", REMINDERS)
    second.wait_for("3 reminded")
    # The interrupted call is repeated with the same key.
    sent = [call.key for call in gateway.calls]
    assert len(sent) == 4
    assert len(set(sent)) == 3


def test_the_command_fails_during_an_outage(
    start_python: Start, database: Path, gateway: Gateway, servers: Servers
) -> None:
    servers[0].freeze()
    servers[1].freeze()
    program = start_python("django", "manage.py", REMINDERS)
    program.wait_for("CommandError")
    assert program.end() == 1
    assert not gateway.calls
