"""`@client.lock(…)` on functions whose body may run after the call returns, such as coroutines."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from typing import Any

import pytest

import quorlock


@pytest.fixture
def client() -> Iterator[quorlock.Client]:
    with quorlock.Client(["memory://decorated"], wait=0) as client:
        yield client


class Bodies:
    """The body of the decorated functions. It records whether the lock is held while it runs."""

    def __init__(self, client: quorlock.Client) -> None:
        self.held: list[bool] = []
        self._lock = client.lock("r")

    async def run(self) -> str:
        self.held.append(await self._lock.locked_async())
        await asyncio.sleep(0)
        self.held.append(await self._lock.locked_async())
        return "done"


@pytest.fixture
def bodies(client: quorlock.Client) -> Bodies:
    return Bodies(client)


class CallsAsync:
    """A callable object with an async `__call__`, like those of `asgiref.sync_to_async`."""

    def __init__(self, bodies: Bodies) -> None:
        self.bodies = bodies

    async def __call__(self) -> str:
        return await self.bodies.run()


class MarkedAsAsync:
    def __init__(self, bodies: Bodies) -> None:
        self.bodies = bodies
        if sys.version_info >= (3, 12):
            inspect.markcoroutinefunction(self)
        else:
            self._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]

    def __call__(self) -> Awaitable[str]:
        return self.bodies.run()


class AwaitsWhenCalled:
    def __init__(self, bodies: Bodies) -> None:
        self.bodies = bodies

    def __call__(self) -> AwaitsWhenCalled:
        return self

    def __await__(self) -> Generator[Any, None, str]:
        return self.bodies.run().__await__()


def wrapped(bodies: Bodies) -> Callable[[], Awaitable[str]]:
    @functools.wraps(bodies.run)
    def wrapper() -> Awaitable[str]:
        return bodies.run()

    return wrapper


def task(bodies: Bodies) -> Callable[[], Awaitable[str]]:
    return lambda: asyncio.get_running_loop().create_task(bodies.run())


def generator(bodies: Bodies) -> Callable[[], Iterator[None]]:
    def body() -> Iterator[None]:
        bodies.held.append(False)
        yield

    return lambda: body()


def async_generator(bodies: Bodies) -> Callable[[], AsyncIterator[None]]:
    async def body() -> AsyncIterator[None]:
        bodies.held.append(False)
        yield

    return lambda: body()


HELD = {
    "async def": lambda bodies: bodies.run,
    "async __call__": CallsAsync,
    "partial": lambda bodies: functools.partial(bodies.run),
    "partial of async __call__": lambda bodies: functools.partial(CallsAsync(bodies)),
    "marked": MarkedAsAsync,
    "static method": lambda bodies: staticmethod(bodies.run),
}

REFUSED = {
    "wrapper": wrapped,
    "lambda": lambda bodies: lambda: bodies.run(),
    "task": task,
    "awaitable": AwaitsWhenCalled,
    "generator": generator,
    "async generator": async_generator,
}


@pytest.mark.parametrize("function", HELD.values(), ids=HELD.keys())
def test_async_callables_of_any_kind_hold_the_lock(
    function: Callable[[Bodies], Callable[[], Awaitable[str]]],
    client: quorlock.Client,
    bodies: Bodies,
) -> None:
    async def main() -> None:
        assert await client.lock("r")(function(bodies))() == "done"
        assert bodies.held == [True, True]
        assert not await client.lock("r").locked_async()

    asyncio.run(main())


@pytest.mark.parametrize("function", REFUSED.values(), ids=REFUSED.keys())
def test_a_body_that_would_run_after_the_release_does_not_run(
    function: Callable[[Bodies], Callable[[], object]], client: quorlock.Client, bodies: Bodies
) -> None:
    async def main() -> None:
        with pytest.raises(TypeError, match="would run after the lock is released"):
            client.lock("r")(function(bodies))()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not bodies.held
        assert not await client.lock("r").locked_async()

    asyncio.run(main())


def test_an_async_function_that_returns_an_awaitable_is_refused(
    client: quorlock.Client, bodies: Bodies
) -> None:
    @client.lock("r")
    async def nested() -> object:
        return bodies.run()

    with pytest.raises(TypeError, match=r"nested returned an awaitable.*await it in the function"):
        asyncio.run(nested())
    assert not bodies.held


def test_arguments_that_are_not_callable_or_not_strings_are_refused(
    client: quorlock.Client,
) -> None:
    with pytest.raises(TypeError, match="decorates a function, not 5"):
        client.lock("r")(5)  # type: ignore[arg-type]
    for bad in (5, None, b"r", ["r"]):
        with pytest.raises(quorlock.ConfigError, match="resource"):
            client.lock(bad)  # type: ignore[call-overload]
