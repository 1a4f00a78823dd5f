"""The forms in which a lock is acquired and held: tries, leases as blocks, and names from calls."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from nodes import is_free, keys, steal
from servers import Servers
from waiting import TIMEOUT, wait_until

import quorlock

ROUNDS = 1000
LONGEST = 0.002
"""The longest delay before an interruption, in seconds. Most acquires take less."""


@pytest.fixture
def client(servers: Servers) -> Iterator[quorlock.Client]:
    with quorlock.Client(servers.urls) as client:
        yield client


# Tries


def test_a_try_in_an_event_loop_returns_a_lease_or_none(client: quorlock.Client) -> None:
    async def main() -> None:
        lock = client.lock("r", wait=None)
        lease = await lock.try_acquire_async()
        assert lease is not None
        assert await lock.try_acquire_async() is None
        assert await lease.release_async()

    asyncio.run(main())


def test_an_acquire_can_have_a_wait_of_its_own(client: quorlock.Client) -> None:
    lock = client.lock("r", wait=None)
    with lock:
        with pytest.raises(quorlock.LockTimeoutError, match="another lease of this client"):
            lock.acquire(wait=0)
        with pytest.raises(quorlock.LockTimeoutError, match="100 ms"):
            lock.acquire(wait=timedelta(milliseconds=100))
        with pytest.raises(quorlock.LockTimeoutError, match="50 ms"):
            asyncio.run(lock.acquire_async(wait=0.05))
        waiting = client.lock("r", wait=0)
        thread = threading.Thread(target=lambda: waiting.acquire(wait=None).release())
        thread.start()
        wait_until(lambda: client.stats().waiting == 1)
    thread.join()
    for bad in ("1", -1, True):
        with pytest.raises(quorlock.ConfigError, match="wait must be"):
            lock.acquire(wait=bad)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        lock.acquire(1)  # type: ignore[arg-type]


# Leases as blocks


def test_the_block_of_a_lease_releases_it(client: quorlock.Client, servers: Servers) -> None:
    lease = client.lock("r").acquire()
    with lease as held:
        assert held is lease
        assert lease.valid
    assert not lease.valid
    wait_until(lambda: is_free(servers, "r"))
    with client.lock("r").acquire():  # the block keeps the lease
        assert client.lock("r").locked()
    assert client.stats().dropped == 0
    with pytest.raises(KeyError, match="body"), client.lock("r").acquire():
        raise KeyError("body")
    wait_until(lambda: is_free(servers, "r"))


def test_the_block_of_a_lease_that_has_ended_does_not_run(client: quorlock.Client) -> None:
    released = client.lock("r").acquire()
    released.release()
    lost = client.lock("s", ttl=0.05, auto_extend=False).acquire()
    assert lost.wait_lost(TIMEOUT)

    async def enter(lease: quorlock.Lease) -> None:
        async with lease:
            pytest.fail("the body ran")

    for lease, why in [(released, "released"), (lost, "ended")]:
        with pytest.raises(quorlock.LeaseLostError, match=why), lease:
            pytest.fail("the body ran")
        with pytest.raises(quorlock.LeaseLostError, match=why):
            asyncio.run(enter(lease))


def test_an_async_block_of_a_lease_releases_it(client: quorlock.Client, servers: Servers) -> None:
    async def main() -> None:
        lease = await client.lock("r").acquire_async()
        async with lease as held:
            assert held is lease
            with pytest.raises(RuntimeError, match="already in a `with` or `async with` block"):
                async with lease:
                    pytest.fail("the body ran")
            assert lease.valid
        assert not lease.valid
        with pytest.raises(KeyError, match="body"):
            async with await client.lock("s").acquire_async():
                raise KeyError("body")

    asyncio.run(main())
    wait_until(lambda: not keys(servers))


def test_a_lease_is_in_one_block_only(client: quorlock.Client, servers: Servers) -> None:
    def enter(lease: quorlock.Lease) -> None:
        with pytest.raises(RuntimeError, match="already in a `with` or `async with` block"), lease:
            pytest.fail("the body ran")
        assert lease.valid

    async def enter_async(lease: quorlock.Lease) -> None:
        enter(lease)
        with pytest.raises(RuntimeError, match="already in a `with` or `async with` block"):
            async with lease:
                pytest.fail("the body ran")
        assert lease.valid

    async def main() -> None:
        async with lock as lease:
            await enter_async(lease)
        async with await lock.acquire_async() as lease:
            await enter_async(lease)
        with lock as lease:
            await enter_async(lease)
        await client.elect("r").run_async(enter_async)

    lock = client.lock("r")
    with lock as lease:
        enter(lease)
    with client.semaphore("r", limit=1) as lease:
        enter(lease)
    with lock.acquire() as lease:
        enter(lease)
        assert client.lock("r").try_acquire() is None
    client.elect("r").run(enter)
    asyncio.run(main())
    assert client.stats().losses == 0
    wait_until(lambda: not keys(servers))


def test_a_lease_whose_block_could_not_begin_can_enter_another(client: quorlock.Client) -> None:
    lease = client.lock("r").acquire()
    entering = lease.__aenter__()
    # There is no event loop, as in curio.
    with pytest.raises(RuntimeError, match="asyncio or trio"):
        entering.send(None)
    with lease:
        assert lease.valid


def test_an_async_block_of_a_lease_is_cancelled_on_loss(servers: Servers) -> None:
    async def main() -> None:
        with quorlock.Client(servers.urls, ttl=2) as client:
            with pytest.raises(quorlock.LeaseLostError, match="majority") as caught:
                async with await client.lock("r").acquire_async():
                    steal(servers, "r")
                    await asyncio.sleep(TIMEOUT)
                    pytest.fail("the body was not cancelled")
            assert isinstance(caught.value.__cause__, asyncio.CancelledError)
        task = asyncio.current_task()
        assert task
        assert task.cancelling() == 0

    asyncio.run(main())


# Signals


@contextlib.contextmanager
def interrupting() -> Iterator[Callable[[], contextlib.AbstractContextManager[None]]]:
    """Yields a context manager whose body a signal interrupts at any moment, as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def interrupted() -> Iterator[None]:
        signal.setitimer(signal.ITIMER_REAL, 1e-6 + random.random() * LONGEST)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        yield interrupted
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_interrupted_block_of_a_lease_is_released(
    client: quorlock.Client, servers: Servers
) -> None:
    lock = client.lock("r", ttl=600)
    interrupts = 0
    with interrupting() as interrupted:
        for _ in range(ROUNDS):
            lease, was_entered = lock.acquire(), False
            try:
                with interrupted(), lease:
                    was_entered = True
            except KeyboardInterrupt:
                interrupts += 1
            # The release has begun, although the signal handler raised.
            assert lease.valid != was_entered
            lease.release()
    assert 0 < interrupts < ROUNDS
    wait_until(lambda: not keys(servers))


@pytest.mark.parametrize("form", ["try_acquire", "acquire"])
def test_interrupted_acquires_release_their_leases(
    client: quorlock.Client, servers: Servers, form: str
) -> None:
    interrupts = 0
    with interrupting() as interrupted:
        for round_ in range(ROUNDS):
            lock = client.lock(f"r{round_}", ttl=1, auto_extend=False)
            lease: quorlock.Lease | None = None
            try:
                with interrupted():
                    lease = getattr(lock, form)()
            except KeyboardInterrupt:
                interrupts += 1
            if lease is not None:
                lease.release()
    assert 0 < interrupts < ROUNDS
    # Between the return and the assignment, Python itself may discard the lease. That is the time
    # of a few instructions; an acquire takes a thousand times as long.
    assert client.stats().dropped <= interrupts / 20
    wait_until(lambda: not keys(servers))


# The resource from the arguments of a call


def test_the_resource_of_a_decorated_function_comes_from_its_arguments(
    client: quorlock.Client,
) -> None:
    @client.lock(lambda order_id, **_: f"orders:{order_id}", wait=0)
    def ship(order_id: int, *, fast: bool = False) -> tuple[bool, bool, bool]:
        """Ships."""
        return fast, client.lock(f"orders:{order_id}").locked(), client.lock("orders:0").locked()

    assert ship(7) == (False, True, False)
    assert ship(order_id=8, fast=True) == (True, True, False)
    assert ship.__doc__ == "Ships."
    with client.lock("orders:9"):
        with pytest.raises(quorlock.LockTimeoutError) as caught:
            ship(9)
        assert ship(10)
    assert caught.value.resource == "orders:9"


def test_the_resource_of_an_async_function_or_a_method_comes_from_its_arguments(
    client: quorlock.Client,
) -> None:
    class Account:
        def __init__(self, number: str) -> None:
            self.number = number

        @client.lock(lambda self, to: [f"account:{self.number}", f"account:{to.number}"])
        async def transfer(self, to: Account) -> bool:
            locks = [client.lock(f"account:{each.number}") for each in (self, to)]
            return all([await lock.locked_async() for lock in locks])

        @client.lock(lambda number: ("create", number))
        @staticmethod
        def create(number: str) -> bool:
            return client.lock("create").locked() and client.lock(number).locked()

    assert asyncio.run(Account("a").transfer(Account("b")))
    assert Account.create("c")
    assert client.stats().held == 0


def test_calls_that_name_different_resources_run_at_the_same_time(client: quorlock.Client) -> None:
    barrier = threading.Barrier(2, timeout=TIMEOUT)

    @client.lock(lambda name: name)
    def meet(name: str) -> None:
        barrier.wait()

    threads = [threading.Thread(target=meet, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not barrier.broken


@pytest.mark.parametrize("named", [None, 7, "", b"r", (), ["r", "r"]])
def test_a_call_without_a_resource_does_not_run(client: quorlock.Client, named: Any) -> None:
    @client.lock(lambda: named)
    def body() -> None:
        pytest.fail("the body ran")

    with pytest.raises(quorlock.ConfigError, match="resource"):
        body()


def test_a_decorator_whose_resource_comes_from_the_call_is_checked_at_once(
    client: quorlock.Client,
) -> None:
    with pytest.raises(quorlock.ConfigError, match="ttl must be"):
        client.lock(str, ttl=0)
    with pytest.raises(quorlock.ConfigError, match="resource"):
        client.lock("r", str)  # type: ignore[call-overload]
    with pytest.raises(quorlock.ConfigError, match="mode"):
        client.lock(str, mode={"config": "none"})  # type: ignore[dict-item]


def test_a_decorator_whose_resources_come_from_the_call_has_a_mode_for_some(
    client: quorlock.Client,
) -> None:
    @client.lock(lambda order: ("config", f"orders:{order}"), mode={"config": "shared"})
    def ship(order: int) -> dict[str, str]:
        return dict(quorlock.current_lease().modes)

    assert ship(42) == {"config": "shared", "orders:42": "exclusive"}


# What objects know of themselves


def test_objects_know_what_they_were_made_with(client: quorlock.Client, servers: Servers) -> None:
    assert client.nodes == tuple(servers.urls)
    secret = quorlock.Client(["redis://user:s3cret@host:7/2"])
    assert secret.nodes == ("redis://host:7/2",)
    assert not client.closed
    lock = client.lock("b", "a", ttl=timedelta(seconds=20))
    assert lock.resources == ("b", "a")
    with lock as lease:
        assert (lease.resource, lease.resources, lease.ttl) == ("b", ("b", "a"), 20.0)
        lease.extend(40)
        assert lease.ttl == 20.0
    client.close()
    assert client.closed
    assert lease.resource == "b"


def described(function: Callable[..., object]) -> dict[str, str]:
    """Returns what a docstring says of each option."""
    entries = (inspect.getdoc(function) or "").split("\n- `")[1:]
    return dict(" ".join(entry.split("\n\n")[0].split()).split("`: ", 1) for entry in entries)


def test_help_shows_every_option_with_its_default_and_unit() -> None:
    of_lock, of_client = described(quorlock.Client.lock), described(quorlock.Client.__init__)
    assert of_lock.keys() == quorlock.LockOptions.__annotations__.keys()
    # No mode can be set for all locks of a client.
    in_common = of_lock.keys() - {"mode"}
    assert of_client.keys() == quorlock.ClientOptions.__annotations__.keys() - in_common
    assert of_lock["mode"].startswith("`exclusive`")
    assert all("the client does not set it" in of_lock[name] for name in in_common)
    for form in (quorlock.Client.__init__, quorlock.Client.lock):
        assert "in seconds, or a `timedelta`" in " ".join((inspect.getdoc(form) or "").split())
