"""A table of the finished runs of each job, in SQLite."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime


@contextmanager
def transaction() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(os.environ["DATABASE"], timeout=10)) as database, database:
        yield database


def create() -> None:
    with transaction() as database:
        database.execute(
            "CREATE TABLE IF NOT EXISTS runs (job TEXT, period TEXT, fence INTEGER NOT NULL,"
            " PRIMARY KEY (job, period))"
        )


def is_done(job: str, period: datetime) -> bool:
    with transaction() as database:
        key = [job, period.isoformat()]
        found = database.execute("SELECT 1 FROM runs WHERE job = ? AND period = ?", key)
        return found.fetchone() is not None


def done(job: str, period: datetime, fence: int) -> None:
    with transaction() as database:
        database.execute("INSERT INTO runs VALUES (?, ?, ?)", [job, period.isoformat(), fence])
