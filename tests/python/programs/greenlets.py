"""Uses all blocking calls in greenlets. The argument is the library: gevent or eventlet."""

# ruff: noqa: E402
from __future__ import annotations

import sys
from typing import Any

NAME = sys.argv[1]
if NAME == "gevent":
    from gevent import monkey

    monkey.patch_all()
    import gevent as library
else:
    import eventlet as library

    library.monkey_patch()

import time
from collections.abc import Callable

import quorlock

WAITERS = 30
"""The number of greenlets that wait: more than there are threads in the hub's thread pool."""

client = quorlock.Client(wait=None)
ticks = 0


def tick() -> None:
    global ticks
    while True:
        library.sleep(0.001)
        ticks += 1


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        library.sleep(0.001)


def lets_others_run(call: Callable[[], Any]) -> Any:
    """Calls the function and asserts that other greenlets ran during the call."""
    before = ticks
    returned = call()
    assert ticks > before, "the hub was blocked"
    return returned


def timed_out(call: Callable[[], object]) -> bool:
    try:
        with library.Timeout(0.1):
            call()
    except library.Timeout:
        return True
    return False


def enter(lock: quorlock.Lock) -> None:
    with lock:
        raise AssertionError("the lock is held")


library.spawn(tick)
lock = client.lock("r")
holder = lock.acquire()
assert lets_others_run(lambda: timed_out(lock.acquire))
assert lets_others_run(lambda: timed_out(lambda: enter(lock)))
wait_until(lambda: client.stats().waiting == 0)
assert not lets_others_run(lambda: holder.wait_lost(0.1))

# Killed waiters leave the queue, and the others get the lock one after another.
fences: list[int] = []


def hold() -> None:
    with lock as lease:
        lease.extend()
        assert lock.locked()
        fences.append(lease.fence)


killed = [library.spawn(hold) for _ in range(WAITERS)]
others = [library.spawn(hold) for _ in range(WAITERS)]
wait_until(lambda: client.stats().waiting == 2 * WAITERS)
for greenlet in killed:
    greenlet.kill()
wait_until(lambda: client.stats().waiting == WAITERS)
assert holder.release()
wait_until(lambda: len(fences) == WAITERS)
assert fences == sorted(set(fences))

stolen = client.lock("stolen").acquire()
losses: list[object] = []
stolen.on_lost(losses.append)
print("ready to be stolen", flush=True)
assert lets_others_run(stolen.wait_lost)
assert stolen.wait_lost(0)
wait_until(lambda: bool(losses))
assert str(client.doctor())
lets_others_run(lambda: timed_out(lambda: library.sleep(1)))
assert client.stats().held == 0
client.close()
print("done")
