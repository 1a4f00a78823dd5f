"""What is going on, on standard error."""

from __future__ import annotations

import sys


def progress(text: str) -> None:
    """Replaces what was told before, on a terminal."""
    start, end = ("\r\x1b[K", "") if sys.stderr.isatty() else ("", "\n")
    print(f"{start}{text}", end=end, file=sys.stderr, flush=True)
