"""Warnings at the line of the program, and what to write instead of a blocking call in a coroutine.

The native modules `convert` and `waiting`, and `_lease`, call this module.
"""

import sys
import warnings
from types import FrameType

from ._errors import EventLoopBlockedWarning, LockTimeoutError

_INSTEAD = {
    "__exit__": ("`with`", "`async with`"),
    "__next__": ("`for`", "`async for`"),
    "close": ("`close()`", "`await aclose()`"),
    # The function that `_lock` makes of a decorated one.
    "hold": ("A decorated `def`", "`async def`"),
}
"""Blocking forms, and what to write in a coroutine. All other methods have a form with `_async`."""


def warn(category: type[Warning], text: str, source: object = None) -> None:
    """Issues a warning at the innermost line that is not of this package. With tracemalloc, Python
    also shows where `source` was created."""
    warnings.warn(text, category, stacklevel=len(_frames()) + 1, source=source)


def warn_of_blocking() -> None:
    """Warns that the call blocks the event loop of this thread, and says what to write instead."""
    outermost = _frames()[-1]
    # In-memory nodes answer at once, and their faults have no async form.
    if (module := _module(outermost)) == "quorlock.testing":
        return
    # A `with` statement calls native code only.
    name = "__exit__" if module == __name__ else outermost.f_code.co_name
    call, instead = _INSTEAD.get(name) or (f"`{name}()`", f"`await {name}_async()`")
    warn(
        EventLoopBlockedWarning,
        f"{call} blocks the event loop of this thread, so no other task runs until it returns: "
        f"use {instead}",
    )


def blame_blocking(error: BaseException) -> None:
    """Adds to the message of a LockTimeoutError that the wait blocked the event loop."""
    if not isinstance(error, LockTimeoutError):
        return
    text = (
        f"{error}; the wait blocked the event loop of this thread, so no task in it could release "
        "the lock: use `async with` or `await acquire_async()`"
    )
    error.args = (text, *error.args[1:])


def _frames() -> list[FrameType]:
    """Returns the frames of this package that lead to the caller, innermost first."""
    frames = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _module(frame).startswith("quorlock."):
        frames.append(frame)
        frame = frame.f_back
    return frames


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))
