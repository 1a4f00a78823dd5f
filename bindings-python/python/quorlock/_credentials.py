"""Calls the function of the option `credentials`, on a thread of quorlock.

An awaitable runs in an event loop of that thread, so the program's own event loop is not needed.
The native `credentials` module calls this module.
"""

# Imported here, not on first use: a child that is forked during an import would wait forever.
import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from ._quorlock import Reply


async def _await(awaitable: Awaitable[object]) -> object:
    return await awaitable


def answer(function: Callable[[str], Any], address: str, reply: Reply) -> None:
    """Calls the function, and replies with its result or with the class of its exception.

    The text of the exception is not used, because it may contain a secret.
    """
    try:
        given = function(address)
        if inspect.isawaitable(given):
            given = asyncio.run(_await(given))
    except BaseException as error:
        reply.fail(type(error).__name__)
    else:
        reply.give(given)
