"""A table whose schema changes, in SQLite."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager


@contextmanager
def transaction() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(os.environ["DATABASE"], timeout=10)) as database, database:
        yield database


def columns() -> list[str]:
    """Returns the columns. Raises OperationalError if there is no table."""
    with transaction() as database:
        database.execute("SELECT 1 FROM bookings LIMIT 1")
        return [row[1] for row in database.execute("PRAGMA table_info(bookings)")]


def book(amount: int) -> None:
    with transaction() as database:
        database.execute("INSERT INTO bookings (amount) VALUES (?)", [amount])
