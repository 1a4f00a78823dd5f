"""Waits for a condition instead of sleeping."""

import asyncio
import time
from collections.abc import Callable

TIMEOUT = 60.0
"""Seconds: far longer than any condition takes, even on a loaded machine."""


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits until the condition is true. Fails the test if it is not true within `TIMEOUT`."""
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
