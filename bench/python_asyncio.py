"""quorlock in Python, with asyncio."""

import asyncio
import sys

from contender import serve_async

import quorlock

client = quorlock.Client(sys.argv[1:])


async def cycle(key: int) -> None:
    async with client.lock(f"asyncio-{key}"):
        pass


asyncio.run(serve_async(cycle))
