"""Forks repeatedly while threads use the client: parent and children must not affect each other.

Prints the number of children that succeeded. The nodes come from QUORLOCK_NODES.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import threading
import time
import traceback

import pytest

import quorlock

FORKS = 20
TIMEOUT = 60

client = quorlock.Client(ttl=30, wait=TIMEOUT, retry_delay=(0.001, 0.02))
shared = client.lock("shared")


async def use_async() -> None:
    async with client.lock("async"):
        await asyncio.sleep(0)


def be_child(lease: quorlock.Lease, number: int) -> None:
    """Checks that a child cannot use a lease of its parent, but can use the client."""
    assert not lease.valid
    assert lease.remaining == 0
    assert lease.token
    assert lease.holder.endswith(f":{os.getppid()}")
    for use in (lease.check, lease.extend):
        with pytest.raises(quorlock.LeaseLostError, match="forked"):
            use()
    assert lease.wait_lost()
    assert not lease.release()
    assert client.lock("parent").locked()
    with shared as own:
        assert own.valid
        assert own.holder.endswith(f":{os.getpid()}")
    asyncio.run(use_async())
    if number % 10 == 0:
        # A grandchild uses the same client, and a new one.
        pid = os.fork()
        if pid == 0:
            run(lambda: be_grandchild(own))
        wait_for(pid)
    with client.lock(f"last-{number}"):
        pass


def be_grandchild(lease: quorlock.Lease) -> None:
    assert not lease.valid
    with shared, quorlock.Client(ttl=2) as another, another.lock("another"):
        pass


def run(child: object) -> None:
    """Calls `child` and exits this process: with status 0, or with 1 after an exception."""
    try:
        child()  # type: ignore[operator]
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def wait_for(pid: int) -> None:
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert status == 0, f"a child exited with {status}"
            return
        time.sleep(0.001)
    raise AssertionError("a child hangs")


def in_pool(number: int) -> int:
    with shared as lease:
        return lease.fence


def main() -> None:
    lease = client.lock("parent").acquire()
    stop = threading.Event()
    turns = [0, 0]

    def hammer(index: int) -> None:
        while not stop.is_set():
            with client.lock(f"thread-{index}"):
                turns[index] += 1

    threads = [threading.Thread(target=hammer, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for number in range(FORKS):
        pid = os.fork()
        if pid == 0:
            run(lambda: be_child(lease, number))  # noqa: B023
        before = list(turns)
        wait_for(pid)
        # The fork does not affect the parent.
        assert lease.valid
        lease.extend()
        deadline = time.monotonic() + TIMEOUT
        while turns[0] <= before[0] or turns[1] <= before[1]:
            assert time.monotonic() < deadline, "a thread of the parent hangs"
            time.sleep(0.0005)
    with multiprocessing.get_context("fork").Pool(3) as pool:
        fences = pool.map(in_pool, range(20), chunksize=1)
    assert len(set(fences)) == 20
    # A child that exits normally does not release leases of its parent.
    process = multiprocessing.get_context("fork").Process(target=shared.locked)
    process.start()
    process.join()
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    wait_for(pid)
    stop.set()
    for thread in threads:
        thread.join()
    assert lease.valid
    assert lease.release()
    print(FORKS)


if __name__ == "__main__":
    main()
