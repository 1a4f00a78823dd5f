"""The functions that Ctrl-C interrupts only where they wait: the entry and the exit of a block.

asyncio cancels the task at Ctrl-C, which has this effect anyway. trio raises KeyboardInterrupt at
any line, except of the functions that `_trio` names to it.
"""

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

uninterrupted: list[Callable[..., Any]] = []


def interrupted_only_where_it_waits(function: F) -> F:
    """Decorates such a function."""
    uninterrupted.append(function)
    return function
