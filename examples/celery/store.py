"""A table of the invoices that were sent, in SQLite."""

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
    """Records that the invoice was sent. It is sent once, so the primary key refuses a second
    writer, without comparing fences."""
    with transaction() as database:
        database.execute("INSERT INTO sent (invoice, fence) VALUES (?, ?)", [invoice, fence])
