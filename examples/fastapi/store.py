"""Orders in SQLite. The `UPDATE` works the same in any SQL database."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager


class StaleFenceError(Exception):
    """A later holder has already written: this one was paused for longer than its lease."""


@contextmanager
def transaction() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(os.environ["DATABASE"], timeout=10)) as database, database:
        yield database


def create() -> None:
    with transaction() as database:
        database.execute(
            "CREATE TABLE IF NOT EXISTS orders ("
            " id INTEGER PRIMARY KEY,"
            " paid INTEGER NOT NULL DEFAULT 0,"
            " fence INTEGER NOT NULL DEFAULT 0)"
        )


def add(order: int) -> None:
    with transaction() as database:
        database.execute("INSERT OR IGNORE INTO orders (id) VALUES (?)", [order])


def is_paid(order: int) -> bool | None:
    """Returns whether the order is paid; None if there is no such order."""
    with transaction() as database:
        row = database.execute("SELECT paid FROM orders WHERE id = ?", [order]).fetchone()
    return None if row is None else bool(row[0])


def mark_paid(order: int, fence: int) -> None:
    """Raises StaleFenceError. A holder can write repeatedly, hence `<=`, not `<`."""
    with transaction() as database:
        done = database.execute(
            "UPDATE orders SET paid = 1, fence = :fence WHERE id = :id AND fence <= :fence",
            {"id": order, "fence": fence},
        )
    if done.rowcount == 0:
        raise StaleFenceError(f"order {order} was written with a fence larger than {fence}")
