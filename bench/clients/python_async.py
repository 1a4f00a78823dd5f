"""The contender quorlock in Python with asyncio, or with uvloop after `--uvloop`."""

import asyncio
import sys
from collections.abc import Awaitable, Callable

import uvloop
from serving import serve_async

import quorlock

on_uvloop = sys.argv[1] == "--uvloop"
client = quorlock.Client(sys.argv[1 + on_uvloop :], auto_extend=False)


def lock(key: str) -> Callable[[], Awaitable[None]]:
    async def cycle() -> None:
        async with client.lock(key):
            pass

    return cycle


name = f"quorlock Python ({'uvloop' if on_uvloop else 'asyncio'})"
with asyncio.Runner(loop_factory=uvloop.new_event_loop if on_uvloop else None) as runner:
    runner.run(serve_async(name, lock))
