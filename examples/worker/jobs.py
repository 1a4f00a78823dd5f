"""A table of jobs, in SQLite."""

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
            "CREATE TABLE IF NOT EXISTS jobs ("
            " id INTEGER PRIMARY KEY, account TEXT NOT NULL, done_with INTEGER)"
        )


def waiting() -> list[tuple[int, str]]:
    with transaction() as database:
        return database.execute(
            "SELECT id, account FROM jobs WHERE done_with IS NULL ORDER BY id"
        ).fetchall()


def is_done(job: int) -> bool:
    with transaction() as database:
        found = database.execute("SELECT done_with FROM jobs WHERE id = ?", [job]).fetchone()
    return found is None or found[0] is not None


def done(job: int, fence: int) -> None:
    """Records the fence of the worker that did the job. A done job is not changed again."""
    with transaction() as database:
        database.execute(
            "UPDATE jobs SET done_with = ? WHERE id = ? AND done_with IS NULL", [fence, job]
        )
