"""A program that uses the forms of the API. mypy and pyright check its types; nothing runs it.

A wrong use that a checker does not report is an error, too: its comment is then not needed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Unpack, assert_type

import redis
import redis.asyncio

import quorlock

client = quorlock.Client(["redis://127.0.0.1:6379"], ttl=10, wait=timedelta(seconds=5))
copied = quorlock.Client.from_redis(redis.Redis(), redis.asyncio.Redis(), ttl=10)
assert_type(copied, quorlock.Client)
quorlock.Client.from_redis("redis://127.0.0.1:6379")  # type: ignore[arg-type]
quorlock.Client(["redis://127.0.0.1:6379"], tll=10)  # type: ignore[call-arg]


def blocks() -> None:
    with client.lock("orders:42", wait=0, mode="shared") as lease:
        assert_type(lease, quorlock.Lease)
        assert_type(lease.fence, int)
        assert_type(quorlock.current_lease(), quorlock.Lease)
        assert_type(lease.try_upgrade(), quorlock.Lease | None)
        for row in lease.heartbeats([1, 2]):
            assert_type(row, int)
    with client.lock("a", "b"), client.semaphore("jobs", limit=5, permits=2) as permit:
        assert_type(permit, quorlock.Lease)
    with client.lock("r", until=5):  # type: ignore[call-overload]
        pass


async def async_blocks() -> None:
    async with client.lock("orders:42") as lease, client.semaphore("jobs", limit=5):
        assert_type(lease, quorlock.Lease)
        await lease.extend_async(5)
        assert_type(await lease.try_upgrade_async(), quorlock.Lease | None)
    acquired = await client.lock("orders:42").try_acquire_async()
    assert_type(acquired, quorlock.Lease | None)


def resource_of(day: str, *, rows: int = 0) -> str:
    return f"report:{day}:{rows}"


@client.lock(resource_of, wait=0)
def report(day: str, *, rows: int = 0) -> bool:
    return quorlock.current_lease().valid and rows > len(day)


@client.lock("report")
async def report_later(day: str) -> bytes:
    return day.encode()


async def decorated() -> None:
    assert_type(report("monday", rows=5), bool)
    assert_type(await report_later("monday"), bytes)
    report(5)  # type: ignore[arg-type]


def acquired() -> None:
    lease = client.lock("orders:42").acquire()
    lease.on_lost(lambda error: print(error.resource))
    assert_type(lease.release(keep=1), bool)
    text = client.lock("orders:42").acquire().detach(within=30)
    assert_type(client.adopt(text), quorlock.Lease)


def passed_on(resource: str, **options: Unpack[quorlock.LockOptions]) -> quorlock.Lock:
    return client.lock(resource, **options)


def with_options() -> None:
    assert_type(passed_on("r", wait=0, mode="shared"), quorlock.Lock)
    passed_on("r", until=5)  # type: ignore[call-arg]
    client.adopt("text", wait=5, holder="b")
    client.adopt("text", mode="shared")  # type: ignore[call-arg]
    client.elect("leader", ttl=5, max_hold=None)
    client.elect("leader", wait=5)  # type: ignore[call-arg]


def elected(client: quorlock.Client) -> None:
    assert_type(client.elect("leader").run(lambda lease: lease.fence), int)


def failed(error: quorlock.QuorlockError) -> None:
    if isinstance(error, quorlock.LockTimeoutError | quorlock.QuorumError):
        assert_type(error.nodes[0], quorlock.NodeReport)
