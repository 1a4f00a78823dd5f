"""Detects functions whose body runs after they have returned: async functions, generators and
context managers.

A lock that decorates such a function like a plain one would be released before the body runs. The
decorator in `_lock`, `Election` and `Lease.on_lost` call this module.
"""

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any


def is_async(function: Callable[..., object]) -> bool:
    """Returns whether calling the function is known to return an awaitable."""
    return any(inspect.iscoroutinefunction(form) or _is_marked(form) for form in _forms(function))


def is_generator(function: Callable[..., object]) -> bool:
    """Returns whether calling the function returns a generator, async or not."""
    return any(
        inspect.isgeneratorfunction(form) or inspect.isasyncgenfunction(form)
        for form in _forms(function)
    )


def is_context_manager(function: Callable[..., object]) -> bool:
    """Returns whether `contextlib` made the function, whose result is a context manager."""
    from contextlib import asynccontextmanager, contextmanager

    # All functions that one of these makes have the same code.
    made: list[Any] = [contextmanager(iter), asynccontextmanager(aiter)]
    return getattr(function, "__code__", None) in [each.__code__ for each in made]


def _forms(function: Callable[..., object]) -> list[Any]:
    """Returns the function without `functools.partial`, and the `__call__` of a callable object."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isclass(function) or inspect.isroutine(function):
        return [function]
    return [function, type(function).__call__]


def _is_marked(function: Any) -> bool:
    # Before Python 3.12, which added `inspect.markcoroutinefunction`, libraries marked their
    # coroutine functions with this attribute.
    coroutines = sys.modules.get("asyncio.coroutines")
    marker = getattr(coroutines, "_is_coroutine", None)
    return marker is not None and getattr(function, "_is_coroutine", None) is marker


def refuse(
    function: Callable[..., object],
    returned: object,
    await_instead: str = "decorate the `async def` function itself",
    iterate_instead: str = "use `with` in its body",
) -> None:
    """Raises TypeError if the returned value would run code later, and stops that code first.
    `await_instead` tells what to do about an awaitable, and `iterate_instead` about a generator or
    context manager."""
    if inspect.isawaitable(returned):
        what, instead = "an awaitable", await_instead
    elif inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        what, instead = "a generator", iterate_instead
    elif inspect.isgenerator(body := getattr(returned, "gen", None)) or inspect.isasyncgen(body):
        # The object of a function that `contextlib` made a context manager.
        what, instead = "a context manager", iterate_instead
    else:
        return
    # A coroutine or generator never starts if it is closed before its first step. A task never
    # starts if it is cancelled before its first step.
    stop = getattr(returned, "cancel" if hasattr(returned, "cancel") else "close", None)
    if stop is not None and not inspect.isasyncgen(returned):
        stop()
    name = getattr(function, "__qualname__", repr(function))
    raise TypeError(
        f"{name} returned {what}, whose body would run after the lock is released; {instead}"
    )
