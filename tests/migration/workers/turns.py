"""The work that a Python service does with the lock, before and after its migration.

turns.cjs does the same.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass
class Settings:
    name: str
    library: str
    urls: list[str]
    prefix: str
    ttl: int
    """The ttl of the lock in milliseconds."""
    counter: str
    """A file with a number, which only the holder of the lock reads and writes."""
    history: str
    """A file with the periods in which the lock was held, one JSON object per line."""

    @classmethod
    def of(cls, text: str) -> Self:
        return cls(**json.loads(text))


def take_turns(
    settings: Settings, with_lock: Callable[[Callable[[int | None], None]], None]
) -> None:
    """Repeatedly increments the counter while holding the lock, until stdin ends.

    `with_lock` acquires the lock, calls its argument once with the fence, and releases the lock.
    """
    over = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=watch, daemon=True).start()
    counter = Path(settings.counter)

    def turn(fence: int | None) -> None:
        begun = time.monotonic_ns()
        count = int(counter.read_text())
        time.sleep(0.001)
        counter.write_text(str(count + 1))
        entry = {"name": settings.name, "begun": begun, "ended": time.monotonic_ns()}
        with Path(settings.history).open("a") as history:
            history.write(json.dumps({**entry, "fence": fence}) + "\n")

    while not over.is_set():
        with_lock(turn)
        time.sleep(random.uniform(0.002, 0.01))
