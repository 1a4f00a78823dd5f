"""A table of the orders that were shipped, in SQLite."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager


@contextmanager
def transaction() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(os.environ["DATABASE"], timeout=10)) as database, database:
        yield database


def create() -> None:
    with transaction() as database:
        database.execute(
            'CREATE TABLE IF NOT EXISTS shipped ("order" INTEGER PRIMARY KEY, fence INTEGER)'
        )


def is_shipped(order: int) -> bool:
    with transaction() as database:
        found = database.execute('SELECT 1 FROM shipped WHERE "order" = ?', [order])
        return found.fetchone() is not None


def mark_shipped(order: int, fence: int) -> None:
    """Records that the order was shipped. The primary key refuses a second writer."""
    with transaction() as database:
        database.execute("INSERT INTO shipped VALUES (?, ?)", [order, fence])
