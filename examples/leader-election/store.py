"""Data that only the leader writes, in SQLite. The SQL works the same in any SQL database."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager


class StaleFenceError(Exception):
    """A later leader has already written."""


@contextmanager
def transaction() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(os.environ["DATABASE"], timeout=10)) as database, database:
        yield database


def create() -> None:
    with transaction() as database:
        database.execute(
            "CREATE TABLE IF NOT EXISTS report (id INTEGER PRIMARY KEY CHECK (id = 1),"
            " fence INTEGER NOT NULL, writes INTEGER NOT NULL)"
        )
        database.execute("INSERT OR IGNORE INTO report VALUES (1, 0, 0)")


def write_report(fence: int) -> None:
    """Writes the report. Raises StaleFenceError if a later leader has already written."""
    with transaction() as database:
        done = database.execute(
            "UPDATE report SET fence = :fence, writes = writes + 1 WHERE fence <= :fence",
            {"fence": fence},
        )
    if done.rowcount == 0:
        raise StaleFenceError(f"a leader with a fence larger than {fence} has written")
