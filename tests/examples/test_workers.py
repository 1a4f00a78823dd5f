"""examples/worker and examples/bullmq: workers that run the jobs of an account one at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from examples.gateway import Gateway
from examples.programs import Program
from nodes import keys, steal
from servers import Servers
from waiting import wait_until

Start = Callable[..., Program]
CREATE = "CREATE TABLE jobs (id INTEGER PRIMARY KEY, account TEXT NOT NULL, done_with INTEGER)"


def fill(path: Path, accounts: str) -> None:
    """Creates a job for each letter of `accounts`. The letter is the name of the job's account."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(CREATE)
        database.executemany("INSERT INTO jobs (account) VALUES (?)", [*accounts])


def undone(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        count: int = database.execute(
            "SELECT count(*) FROM jobs WHERE done_with IS NULL"
        ).fetchone()[0]
        return count


def accounts_of(gateway: Gateway) -> list[str]:
    return sorted(call.body["account"] for call in gateway.calls)


def test_workers_share_the_jobs(
    start_python: Start, gateway: Gateway, servers: Servers, tmp_path: Path
) -> None:
    fill(tmp_path / "database", "aaabbb")
    gateway.hold()
    workers = [start_python("worker", "worker.py") for _ in range(3)]
    for worker in workers:
        worker.wait_for("ready")
    # Jobs of one account run one at a time: two workers are busy, and the third has no job.
    wait_until(lambda: accounts_of(gateway) == ["a", "b"])
    gateway.release()
    wait_until(lambda: undone(tmp_path / "database") == 0)
    for worker in workers:
        assert worker.terminate() == 0, worker.text
    assert accounts_of(gateway) == [*"aaabbb"]
    assert not gateway.overlaps
    assert not keys(servers)


def test_the_job_of_a_killed_worker_is_repeated(
    start_python: Start, gateway: Gateway, servers: Servers, tmp_path: Path
) -> None:
    fill(tmp_path / "database", "a")
    gateway.hold()
    first = start_python("worker", "worker.py")
    wait_until(lambda: gateway.states == ["in progress"])
    first.kill()
    gateway.release()
    second = start_python("worker", "worker.py")
    second.wait_for("job 1 done")
    assert [call.key for call in gateway.calls] == ["job-1", "job-1"]
    assert second.terminate() == 0


def test_a_worker_that_was_paused_repeats_the_job(
    start_python: Start, gateway: Gateway, servers: Servers, tmp_path: Path
) -> None:
    fill(tmp_path / "database", "a")
    gateway.hold()
    worker = start_python("worker", "worker.py")
    wait_until(lambda: gateway.states == ["in progress"])
    worker.freeze()
    wait_until(lambda: not keys(servers))
    gateway.release()
    wait_until(lambda: gateway.states == ["answered"])
    worker.thaw()
    # The lease ended during the job, so the worker does not record the job as done.
    worker.wait_for("job 1 will be repeated: .*accounts:a")
    worker.wait_for("job 1 done")
    assert [call.key for call in gateway.calls] == ["job-1", "job-1"]
    assert worker.terminate() == 0
    assert not keys(servers)


@pytest.fixture
def add(start_node: Start, queue: Servers) -> Callable[..., None]:
    """`add(accounts)` adds a job for each letter of `accounts` to each queue."""

    def add(accounts: str, queues: str = "['charges', 'refunds']") -> None:
        program = f"""
            import {{ Queue }} from 'bullmq'
            import IORedis from 'ioredis'
            const connection = new IORedis(process.env.QUEUE_URL, {{ maxRetriesPerRequest: null }})
            for (const name of {queues}) {{
              const queue = new Queue(name, {{ connection }})
              for (const account of '{accounts}') {{
                await queue.add('book', {{ account }}, {{ attempts: 2 }})
              }}
              await queue.close()
            }}
            connection.disconnect()
        """
        done = start_node("bullmq", "--input-type=module", "--eval", program)
        assert done.end() == 0, done.text

    return add


@pytest.fixture
def start_worker(start_node: Start, queue: Servers) -> Callable[[], Program]:
    def start_worker() -> Program:
        worker = start_node("bullmq", "worker.js")
        worker.wait_for("ready")
        return worker

    return start_worker


def delayed(queue: Servers) -> int:
    counts = [queue[0].command("ZCARD", f"bull:{name}:delayed") for name in ("charges", "refunds")]
    return sum(int(str(count)) for count in counts)


def completed(*workers: Program) -> int:
    return sum(worker.text.count(" completed") for worker in workers)


def test_jobs_of_an_account_exclude_each_other_across_queues(
    start_worker: Callable[[], Program],
    add: Callable[..., None],
    queue: Servers,
    gateway: Gateway,
    servers: Servers,
) -> None:
    workers = start_worker(), start_worker()
    gateway.hold()
    add("aab")
    # One job of each account is running. The others are delayed, and do not occupy a worker.
    wait_until(lambda: accounts_of(gateway) == ["a", "b"] and delayed(queue) == 4)
    gateway.release()
    wait_until(lambda: completed(*workers) == 6)
    assert accounts_of(gateway) == [*"aaaabb"]
    assert not gateway.overlaps
    for worker in workers:
        assert worker.terminate() == 0, worker.text
        assert "failed" not in worker.text
    assert not keys(servers)


def test_a_job_that_loses_its_lease_is_retried(
    start_worker: Callable[[], Program],
    add: Callable[..., None],
    gateway: Gateway,
    servers: Servers,
) -> None:
    worker = start_worker()
    gateway.hold()
    add("a", "['charges']")
    wait_until(lambda: gateway.states == ["in progress"])
    steal(servers, "accounts:a")
    worker.wait_for("charges 1 failed: .*accounts:a")
    wait_until(lambda: gateway.states == ["aborted"])
    gateway.release()
    for server in servers:
        server.command("DEL", "accounts:a")
    worker.wait_for("charges 1 completed")
    assert worker.terminate() == 0, worker.text
    assert not keys(servers)


def test_jobs_are_delayed_until_an_outage_ends(
    start_worker: Callable[[], Program],
    add: Callable[..., None],
    queue: Servers,
    gateway: Gateway,
    servers: Servers,
) -> None:
    worker = start_worker()
    servers[0].freeze()
    servers[1].freeze()
    add("a", "['charges']")
    wait_until(lambda: delayed(queue) == 1)
    assert not gateway.calls
    servers[0].thaw()
    worker.wait_for("charges 1 completed")
    assert "failed" not in worker.text
