"""examples/shared-locks: settings that many read and one rewrites, and a gate for migrations."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from examples.programs import Program
from nodes import keys
from servers import Servers
from waiting import wait_until

Start = Callable[..., Program]
DIRECTORY = "shared-locks"
QUORLOCK = Path(sys.executable).with_name("quorlock")


@pytest.fixture
def settings(environment: dict[str, str], tmp_path: Path) -> None:
    environment["SETTINGS"] = str(tmp_path)
    for name in ("prices", "taxes"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"revision": 0}))


@pytest.mark.usefixtures("settings")
def test_readers_in_two_languages_see_only_whole_revisions(
    start_python: Start, start_node: Start, servers: Servers
) -> None:
    readers = [start_python(DIRECTORY, "reader.py") for _ in range(2)]
    readers += [start_node(DIRECTORY, "reader.js") for _ in range(2)]
    for reader in readers:
        reader.wait_for("prices=0 taxes=0")
    writer = start_python(DIRECTORY, "writer.py")
    writer.wait_for("wrote revision 100")
    for reader in readers:
        reader.wait_for("prices=100 taxes=100")
        assert reader.terminate() == 0, reader.text
        seen = re.findall(r"prices=(\d+) taxes=(\d+)", reader.text)
        assert all(prices == taxes for prices, taxes in seen)
        assert len(set(seen)) > 2
    wait_until(lambda: not keys(servers))


def test_workers_do_not_notice_a_migration(
    start: Start, start_python: Start, environment: dict[str, str], servers: Servers
) -> None:
    with closing(sqlite3.connect(environment["DATABASE"])) as database, database:
        database.execute("CREATE TABLE bookings (amount INTEGER)")
    workers = [start_python(DIRECTORY, "worker.py") for _ in range(3)]
    for worker in workers:
        worker.wait_for("booked with amount$")
    command = [str(QUORLOCK), "run", "--wait", "60s", "schema", "--", sys.executable, "migrate.py"]
    start(command, DIRECTORY).wait_for("migrated")
    for worker in workers:
        worker.wait_for("booked with amount currency$")
        assert worker.terminate() == 0, worker.text
    # No job was lost: a worker that fails would have ended.
    with closing(sqlite3.connect(environment["DATABASE"])) as database:
        booked = database.execute("SELECT count(*) FROM bookings").fetchone()[0]
    assert booked >= sum(worker.text.count("booked with") for worker in workers)
    wait_until(lambda: not keys(servers))
