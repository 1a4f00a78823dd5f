"""The contender quorlock in Python with asyncio, or with uvloop after `--uvloop`."""

import asyncio
import sys

import uvloop
from serving import serve_async

import quorlock

on_uvloop = sys.argv[1] == "--uvloop"
client = quorlock.Client(sys.argv[1 + on_uvloop :], auto_extend=False)


async def cycle(key: str) -> None:
    async with client.lock(key):
        pass


name = f"quorlock Python ({'uvloop' if on_uvloop else 'asyncio'})"
with asyncio.Runner(loop_factory=uvloop.new_event_loop if on_uvloop else None) as runner:
    runner.run(serve_async(name, cycle))
