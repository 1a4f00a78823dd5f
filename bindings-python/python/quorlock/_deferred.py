"""Functions whose body runs after they have returned: async functions and generators.

A lock that decorates such a function would be released before the body runs.
"""

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling the function is known to return an awaitable."""
    return any(inspect.iscoroutinefunction(form) or _is_marked(form) for form in _forms(function))


def is_generator(function: Callable[..., object]) -> bool:
    """Whether calling the function returns a generator, async or not."""
    return any(
        inspect.isgeneratorfunction(form) or inspect.isasyncgenfunction(form)
        for form in _forms(function)
    )


def _forms(function: Callable[..., object]) -> list[Any]:
    """The function without what `functools.partial` adds, and what a call of an object runs."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isclass(function) or inspect.isroutine(function):
        return [function]
    return [function, type(function).__call__]


def _is_marked(function: Any) -> bool:
    # How a function is marked before Python 3.12, which has `inspect.markcoroutinefunction`.
    coroutines = sys.modules.get("asyncio.coroutines")
    marker = getattr(coroutines, "_is_coroutine", None)
    return marker is not None and getattr(function, "_is_coroutine", None) is marker


def refuse(function: Callable[..., object], returned: object) -> None:
    """Raises TypeError for a result whose body runs later, after it has stopped that."""
    if inspect.isawaitable(returned):
        what, instead = "an awaitable", "decorate the `async def` function itself"
    elif inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        what, instead = "a generator", "use `with` in its body"
    else:
        return
    # A coroutine or generator that has not begun never begins then, and a task is cancelled before
    # its first step.
    stop = getattr(returned, "cancel" if hasattr(returned, "cancel") else "close", None)
    if stop is not None and not inspect.isasyncgen(returned):
        stop()
    name = getattr(function, "__qualname__", repr(function))
    raise TypeError(
        f"{name} returned {what}, whose body would run after the lock is released; {instead}"
    )
