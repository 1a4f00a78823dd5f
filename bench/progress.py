"""Shows the progress on standard error."""

from __future__ import annotations

import sys
import time

_BEGAN = time.monotonic()


def progress(text: str) -> None:
    """Shows a progress message. On a terminal, it replaces the previous one."""
    start, end = ("\r\x1b[K", "") if sys.stderr.isatty() else ("", "\n")
    minutes, seconds = divmod(int(time.monotonic() - _BEGAN), 60)
    print(f"{start}{minutes}:{seconds:02} {text}", end=end, file=sys.stderr, flush=True)
