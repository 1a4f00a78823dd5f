"""Which invoices were sent, in SQLite."""

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
            "CREATE TABLE IF NOT EXISTS sent (invoice INTEGER PRIMARY KEY, fence INTEGER NOT NULL)"
        )


def is_sent(invoice: int) -> bool:
    with transaction() as database:
        found = database.execute("SELECT 1 FROM sent WHERE invoice = ?", [invoice])
        return found.fetchone() is not None


def mark_sent(invoice: int, fence: int) -> None:
    """An invoice is sent once and for all, so that the key is enough to refuse a second writer."""
    with transaction() as database:
        database.execute("INSERT INTO sent (invoice, fence) VALUES (?, ?)", [invoice, fence])
