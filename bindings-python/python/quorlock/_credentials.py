"""Calls the function of the option `credentials`, on a thread of quorlock.

An awaitable runs in an asyncio event loop of that thread, also in a program that runs trio, so the
program's own event loop is not needed.
The native `credentials` module calls this module.
"""

# Imported here, not on first use: a child that is forked during an import would wait forever.
import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from . import _hubs
from ._quorlock import Reply


async def _await(awaitable: Awaitable[object]) -> object:
    return await awaitable


def asker(function: Callable[[str], Any]) -> Callable[[str, Reply], None]:
    """Returns a function that calls `function` for an address and replies with the result."""
    # With gevent, several threads that each make their first hub at the same time may wait for one
    # another forever. A hub that exists before prevents that.
    _hubs.current()
    return partial(_answer, function)


def _answer(function: Callable[[str], Any], address: str, reply: Reply) -> None:
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
