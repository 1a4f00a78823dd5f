#!/usr/bin/env python3
"""Creates the report of the day. Cron on every host starts it with `quorlock run`; see crontab."""

import json
import os
import sqlite3
import urllib.request
from contextlib import closing
from datetime import UTC, datetime


def main() -> None:
    fence = int(os.environ["QUORLOCK_FENCE"])
    today = datetime.now(UTC).date().isoformat()
    with closing(sqlite3.connect(os.environ["DATABASE"], timeout=10)) as database:
        with database:
            database.execute(
                "CREATE TABLE IF NOT EXISTS reports (day TEXT PRIMARY KEY, fence INTEGER NOT NULL)"
            )
        # A host that starts much later finds the lock free, so check whether the report exists.
        if database.execute("SELECT 1 FROM reports WHERE day = ?", [today]).fetchone():
            return
        publish(today)
        with database:
            database.execute("INSERT INTO reports VALUES (?, ?)", [today, fence])
    print(f"{today} published")


def publish(day: str) -> None:
    request = urllib.request.Request(
        os.environ["GATEWAY_URL"] + "/reports",
        json.dumps({"day": day}).encode(),
        # Makes a repetition harmless if the host fails before the `INSERT`.
        {"Content-Type": "application/json", "Idempotency-Key": f"report-{day}"},
    )
    with urllib.request.urlopen(request, timeout=60):
        pass


main()
