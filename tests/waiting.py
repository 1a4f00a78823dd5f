"""Waiting for a condition, in place of sleeping."""

import asyncio
import time
from collections.abc import Callable

TIMEOUT = 60.0
"""Seconds: far more than any of the conditions takes, also on a loaded machine."""


def wait_until(condition: Callable[[], bool]) -> None:
    """Returns when the condition is true; fails the test if it does not come true."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.005)


async def wait_until_async(condition: Callable[[], bool]) -> None:
    """`wait_until` for asyncio."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        await asyncio.sleep(0.005)
